// Strategies on a parameter service, and the service over threads and in virtual time.
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "distributed/comm/virtual_cluster/run.h"
#include "distributed/strategies/on_service.h"
#include "rank.h"
#include "store.h"
#include "tests/support/error_of.h"
#include "tests/support/sanitizer.h"

namespace lockstep::distributed {
namespace {

using namespace std::chrono_literals;
using optim::GradScaler;
using test::error_of;

constexpr int kEverybody = ServiceOptions::kEverybody;
const std::vector<std::string> kBackends = {"threads", "virtual"};

// A worker of a service of `numel` parameters, gradients as it likes.
class Worker {
 public:
  Worker(Communicator& comm, const ServiceOptions& options,
         const optim::OptimizerOptions& optimizer, int64_t numel = 1)
      : setup_(options, comm.size(), optimizer, numel),
        service(comm, *setup_),
        lr_(optimizer.lr),
        out(zeros({numel})) {}

  PushReply push(float gradient) {
    return service.push(
        {.clock = clock++, .grad = full(out.shape(), gradient), .weight = 1, .lr = lr_});
  }
  Snapshot pull() { return service.pull(clock, out); }

 private:
  StoreSetup setup_;

 public:
  ParameterService service;
  int64_t clock = 0;

 private:
  double lr_;

 public:
  Tensor out;
};

TEST(KnownFaults, O18_NoUpdateIsLost) {
  for (const std::string& backend : kBackends)
    run_ranks(4, {.backend = backend}, [](Communicator& comm) {
      Worker worker(comm, {}, {.lr = 1});
      for (int i = 0; i < 1000; ++i) worker.push(1);
      comm.barrier();
      worker.pull();
      EXPECT_EQ(test::floats(worker.out)[0], -4000);
    });
}

TEST(KnownFaults, O18_BoundedStalenessWithAWorkerThatLeaves) {
  for (const std::string& backend : kBackends) {
    std::mutex mutex;
    std::vector<int64_t> begun(2);
    run_ranks(2, {.backend = backend, .timeout = 20s}, [&](Communicator& comm) {
      Worker worker(comm, {.bound = 1}, {.lr = 0.1});
      const int64_t iterations = comm.rank() == 0 ? 3 : 6;
      for (int64_t i = 0; i < iterations; ++i) {
        {
          const std::lock_guard lock(mutex);
          begun[comm.rank()] = i;
          // Iterations begun differ by the bound; those that are over by one more.
          if (i < 3) {
            EXPECT_LE(i, begun[1 - comm.rank()] + 2);
          }
        }
        if (comm.rank() == 1) std::this_thread::sleep_for(2ms);
        worker.push(1);
        if (i + 1 < iterations) worker.pull();
      }
      if (comm.rank() == 0) worker.service.leave();
      comm.barrier();
      if (comm.rank() == 0) return;
      worker.pull();
      EXPECT_NEAR(test::floats(worker.out)[0], -0.9, 1e-6);
      EXPECT_LE(worker.service.statistics().max_ahead, 1);
    });
  }
}

TEST(KnownFaults, O18_APullIsOneConsistentVersion) {
  run_ranks(4, [](Communicator& comm) {
    Worker worker(comm, {}, {.lr = 1}, 5000);
    for (int i = 0; i < 200; ++i) {
      worker.push(1);
      const Snapshot snapshot = worker.pull();
      for (float w : test::floats(worker.out)) ASSERT_EQ(w, -static_cast<double>(snapshot.version));
    }
  });
}

// Rank 0 computes for a second, the others not at all; in real time it sleeps.
void let_others_wait(Communicator& comm) {
  comm.compute_begins({.micro = 0});
  comm.compute_reached(1);
  if (comm.backend_name() != "virtual") std::this_thread::sleep_for(50ms);
}

TEST(KnownFaults, O18_AStoppedServiceEndsItsWorkers) {
  for (const std::string& backend : kBackends)
    for (const bool they_wait : {false, true}) {
      const auto start = Clock::now();
      const auto cluster = std::make_shared<virtual_cluster::Run>(
          virtual_cluster::Cluster::parse("compute=1s"), 3, 1);
      int ended = 0;
      run_ranks(3, {.backend = backend, .timeout = 20s, .virtual_run = cluster},
                [&](Communicator& comm) {
                  Worker worker(comm, {.quorum = kEverybody}, {.lr = 1});
                  if (comm.rank() == 0) {
                    if (they_wait) let_others_wait(comm);
                    worker.service.stop();
                    ++ended;
                    return;
                  }
                  const std::string text = error_of<SystemError>([&] {
                    worker.push(1);
                    worker.pull();  // rank 0 never pushes
                  });
                  EXPECT_EQ(text, "[service] it was stopped");
                });
      EXPECT_EQ(ended, 1) << backend;
      EXPECT_LT(Clock::now() - start, 10s);
    }
}

TEST(ParameterServiceFaults, AWorkerThatStallsIsNamedWithWhatItHoldsUp) {
  std::vector<std::string> texts(3);
  run_ranks(3, {.timeout = 300ms}, [&](Communicator& comm) {
    try {
      Worker worker(comm, {.quorum = kEverybody}, {.lr = 1});
      if (comm.rank() == 2) std::this_thread::sleep_for(900ms);
      worker.push(1);
      worker.pull();
    } catch (const SystemError& e) {
      EXPECT_EQ(e.site().rank, 2);
      texts[comm.rank()] = e.what();
    }
  });
  for (const std::string& text : texts)
    EXPECT_NE(text.find("rank 2 of 3 did not call a service within 0.3 s; rank"), std::string::npos)
        << text;
  EXPECT_NE(texts[2].find("the parameters of clock 1: 2 of clock 0's gradients have come"),
            std::string::npos)
      << texts[2];
}

TEST(ParameterServiceFaults, WhoHasLeftWaitsForTheOthersWhileTheyCall) {
  for (const std::string& backend : kBackends)
    run_ranks(2, {.backend = backend, .timeout = 1s}, [&](Communicator& comm) {
      Worker worker(comm, {}, {.lr = 1});
      if (comm.rank() == 1)
        for (int i = 0; i < 16; ++i) {
          std::this_thread::sleep_for(100ms);
          worker.push(1);
        }
      worker.service.leave();
      worker.service.await_all_left();
      worker.service.peek(worker.out);
      EXPECT_EQ(test::floats(worker.out)[0], -16) << backend;
    });
  const std::string text = error_of<SystemError>([&] {
    run_ranks(2, {.timeout = 200ms}, [&](Communicator& comm) {
      Worker worker(comm, {}, {.lr = 1});
      worker.push(1);
      if (comm.rank() == 1) std::this_thread::sleep_for(700ms);
      worker.service.leave();
      worker.service.await_all_left();
    });
  });
  EXPECT_NE(text.find("rank 1 of 2 did not call a service within 0.2 s; rank 0"), std::string::npos)
      << text;
  EXPECT_NE(text.find("waits for the others' end"), std::string::npos) << text;
}

TEST(ParameterServiceStress, PushesPullsAndRepeatsOfTwoAndFourThreads) {
  for (int ranks : {2, 4})
    for (int quorum : {ServiceOptions::kAtOnce, kEverybody, 1})
      for (int64_t bound : {-1, 0, 2}) {
        if (quorum == 1 && bound >= 0) continue;
        run_ranks(ranks, {.timeout = 60s}, [&](Communicator& comm) {
          Worker worker(comm, {.quorum = quorum, .bound = bound}, {.lr = 0x1p-12}, 257);
          for (int i = 0; i < 60; ++i) {
            worker.push(1);
            if (i % 7 == comm.rank()) {  // the reply was lost
              --worker.clock;
              EXPECT_EQ(worker.push(1).outcome, PushOutcome::duplicate);
            }
            const Snapshot snapshot = worker.pull();
            for (float w : test::floats(worker.out))
              ASSERT_EQ(w, -0x1p-12 * static_cast<double>(snapshot.version));
          }
          comm.barrier();
          const ServiceStatistics statistics = worker.service.statistics();
          int64_t accepted = 0, taken = 0;
          for (const WorkerStatistics& w : statistics.workers) {
            accepted += w.accepted;
            taken += w.accepted + w.late;
          }
          EXPECT_EQ(taken, 60 * ranks);
          if (quorum == ServiceOptions::kAtOnce) {
            EXPECT_EQ(statistics.steps, accepted);
          } else if (quorum == kEverybody) {
            EXPECT_EQ(statistics.steps, 60);
          }
          if (bound >= 0) {
            EXPECT_LE(statistics.max_ahead, bound);
          }
        });
      }
}

// Strategies

ReducerOptions with(Uneven uneven) { return {.uneven = uneven}; }

// w of both ranks; rank 0 has three batches of gradient 2, rank 1 five of gradient 4.
std::vector<float> uneven_run(const std::string& spec, Uneven uneven, const std::string& backend) {
  std::vector<float> w(2);
  run_ranks(2, {.backend = backend, .timeout = 10s}, [&](Communicator& comm) {
    Rank<> rank(spec, comm, with(uneven), kPlainSgd);
    rank.reducer.start(*rank.optimizer);
    const int64_t batches = comm.rank() == 0 ? 3 : 5;
    const GradScaler scaler(1, 1);
    for (int64_t s = 0;; ++s) {
      if (s < batches) rank.micro(rank.model.loss(comm.rank() == 0 ? 2 : 4), Sync::now, 1, scaler);
      const StepVerdict verdict = rank.finish(scaler);
      if (rank.reducer.exhausted(verdict)) break;
      rank.step(verdict);
    }
    comm.barrier();  // all have ended
    const auto seen = rank.reducer.evaluating(*rank.optimizer);
    w[comm.rank()] = rank.model.value();
  });
  return w;
}

TEST(KnownFaults, O05_UnevenDataUnderAServiceThatWaitsForAllIsAsUnderAllReduce) {
  for (const std::string& backend : kBackends)
    for (const char* spec : {"allreduce", "async:bound=0", "backup:keep=2"}) {
      EXPECT_EQ(uneven_run(spec, Uneven::active, backend), (std::vector<float>{-17, -17})) << spec;
      EXPECT_EQ(uneven_run(spec, Uneven::initial, backend), (std::vector<float>{-13, -13})) << spec;
      EXPECT_EQ(uneven_run(spec, Uneven::stop, backend), (std::vector<float>{-9, -9})) << spec;
    }
}

TEST(KnownFaults, O05_UnevenDataUnderAsynchronyEveryGradientCounts) {
  // 3·2 + 5·4: nobody waits for the one that has left, and all see what came of it.
  for (const std::string& backend : kBackends)
    for (const char* spec : {"async", "async:bound=1"})
      EXPECT_EQ(uneven_run(spec, Uneven::active, backend), (std::vector<float>{-26, -26})) << spec;
}

// Weights of all ranks after six steps of the small net, clipped, on this wire.
std::vector<Floats> net_after(const std::string& spec, int ranks, const std::string& backend,
                              const ExchangeOptions& exchange, const optim::Precision& precision) {
  std::vector<Floats> weights(static_cast<size_t>(ranks));
  run_ranks(ranks, {.backend = backend}, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    SmallNet net(1);
    optim::FlatParams params(net, precision);
    const auto strategy = make_strategy(spec);
    Reducer reducer(params, comm, *strategy, {.bucket_bytes = 1500, .exchange = exchange});
    const auto optimizer =
        optim::make_optimizer("adamw", params.all(), {.lr = 1e-2, .weight_decay = 0.1});
    const GradScaler scaler(1024, 8);
    for (int64_t s = 0; s < 6; ++s) {
      optimizer->set_lr(1e-2 / static_cast<double>(1 + s));
      for (int k = 0; k < 2; ++k) {
        if (comm.rank() == 1 && s == 3) continue;  // no data once
        const auto micro = reducer.micro({.sync = k == 1 ? Sync::now : Sync::later, .weight = 4});
        autograd::backward(scaler.scale(net.loss_sum((s * ranks + comm.rank()) * 2 + k)));
      }
      StepVerdict verdict = reducer.finish_backward(scaler);
      verdict.clip(reducer.grad_norm(verdict), 0.5);
      reducer.step(*optimizer, verdict);
      reducer.finish_step(s);
    }
    weights[comm.rank()] = floats(params.all().param);
  });
  return weights;
}

TEST(OnService, WaitingForAllIsAllReduceBitForBit) {
  const auto exchanges = test::kThreadSanitizer ? default_exchanges() : all_exchanges();
  for (const std::string& backend : kBackends)
    for (int ranks : {2, 3})
      for (const ExchangeOptions& exchange : exchanges)
        for (const optim::Precision& precision : all_precisions()) {
          const auto expected = net_after("allreduce", ranks, backend, exchange, precision);
          for (const std::string& spec :
               {std::string("async:bound=0"), fmt::format("backup:keep={}", ranks)})
            ASSERT_EQ(net_after(spec, ranks, backend, exchange, precision), expected)
                << spec << " " << ranks << " " << describe(exchange) << " "
                << name_of(precision.params) << " " << backend;
        }
}

TEST(OnService, OneRankAloneIsPlainTrainingWhateverTheRule) {
  const auto expected = net_after("allreduce", 1, "threads", {}, {});
  for (const char* spec :
       {"async", "async:bound=3,lr=inverse,push=share,compensate=0.1,drop_older=0",
        "async:momentum=corrected", "backup", "backup:keep=1"})
    EXPECT_EQ(net_after(spec, 1, "threads", {}, {}), expected) << spec;
}

// One rank after another pushes the gradient 1, steps of SGD with momentum 0.5; w of the last.
double momentum_run(const std::string& settings, int ranks, int rounds, double momentum,
                    double lr = 1) {
  double w = 0;
  run_ranks(ranks, {.backend = "virtual"}, [&](Communicator& comm) {
    Rank<> rank("async" + settings, comm, {}, {.lr = lr, .momentum = momentum});
    for (int i = 0; i < rounds; ++i) {
      rank.micro(rank.model.loss(1), Sync::now, 1);
      rank.step(rank.finish());
    }
    rank.reducer.end();
    comm.barrier();
    const auto seen = rank.reducer.evaluating(*rank.optimizer);
    if (comm.rank() == 0) w = rank.model.value();
  });
  return w;
}

TEST(Async, WhoseMomentum) {
  // Two ranks, two gradients of 1 each.
  EXPECT_EQ(momentum_run(":momentum=none", 2, 2, 0.5), -4);
  EXPECT_EQ(momentum_run("", 2, 2, 0.5), -(1 + 1.5 + 1.75 + 1.875));      // one velocity
  EXPECT_EQ(momentum_run(":momentum=local", 2, 2, 0.5), -2 * (1 + 1.5));  // one each
  EXPECT_EQ(momentum_run(":momentum=corrected", 2, 2, 0.5), -4);          // 1 - 1 = 0 left
  // m = 0.9 is 9 steps of delay; of four ranks asynchrony has three: 6 are left, m' = 6/7.
  const double m = 6.0 / 7;
  double velocity = 0, w = 0;
  for (int i = 0; i < 8; ++i) {
    velocity = m * velocity + 1;
    w -= velocity;
  }
  EXPECT_NEAR(momentum_run(":momentum=corrected", 4, 2, 0.9), w, 1e-5);
}

TEST(Async, ShareIsTheLearningRateOverTheRanks) {
  EXPECT_EQ(momentum_run(":push=share", 4, 2, 0), -2);
  EXPECT_EQ(momentum_run(":push=full", 4, 2, 0), -8);
}

TEST(Async, SettingsThatDoNotGoTogetherAreRefusedInOneSentence) {
  EXPECT_EQ(error_of([] { make_strategy("async:bound=0,lr=sqrt,push=share"); }),
            "[async] 'async:bound=0,lr=sqrt,push=share': at bound=0 all gradients of a clock make "
            "one step and none is stale; leave out lr, push");
  for (const char* spec :
       {"async:bound=0,drop_older=3", "async:bound=0,compensate=0.1",
        "async:bound=0,momentum=corrected", "async:bound=0,momentum=local",
        "async:momentum=local,compensate=0.1", "async:bound=-2", "async:lr=cubic", "backup:keep=0"})
    EXPECT_THROW(make_strategy(spec), UsageError) << spec;
  run_ranks(2, [](Communicator& comm) {
    Rank<> rank("async:momentum=local", comm, {}, kPlainSgd);
    EXPECT_NE(error_of([&] {
                rank.reducer.start(*rank.optimizer);
              }).find("expected the optimizer sgd with momentum"),
              std::string::npos);
    EXPECT_NE(error_of([&] {
                Rank<>("backup:keep=3", comm, {}, kPlainSgd);
              }).find("[backup] keep; expected at most 2"),
              std::string::npos);
  });
}

TEST(Async, AGradientThatIsNotFiniteBacksOffOneScaleAndIsCounted) {
  run_ranks(2, {.backend = "virtual"}, [](Communicator& comm) {
    Rank<> rank("async", comm, {}, kPlainSgd);
    GradScaler scaler(optim::GradScalerOptions{.scale = 1024});
    const float bad = std::numeric_limits<float>::infinity();
    rank.micro(rank.model.loss(comm.rank() == 0 ? bad : 3), Sync::now, 1, scaler);
    const StepVerdict verdict = rank.finish(scaler);
    rank.step(verdict);
    scaler.update(verdict);
    EXPECT_EQ(scaler.loss_scale(), comm.rank() == 0 ? 512 : 1024);
    comm.barrier();
    StrategyReport report;
    rank.strategy->report(report);
    const auto value = [&](const std::string& name) {
      for (const auto& number : report.numbers)
        if (number.name == name) return number.value;
      return -1.0;
    };
    EXPECT_EQ(value("not_finite"), 1);
    EXPECT_EQ(value("accepted"), 1);
    EXPECT_EQ(value("versions"), 1);
    rank.reducer.end();
    comm.barrier();
    const auto seen = rank.reducer.evaluating(*rank.optimizer);
    EXPECT_EQ(rank.model.value(), -3);
  });
}

TEST(Backup, ALateRankLeavesOutWhatIsOverAndItsDataIsReported) {
  // Rank 2 takes three and a half times as long; all compute ten steps of one second.
  std::vector<int64_t> made(3);
  std::string text;
  const auto cluster = std::make_shared<virtual_cluster::Run>(
      virtual_cluster::Cluster::parse("compute=1s,slow=2:3.5,latency=0s,bandwidth=1000GB"), 3, 1);
  run_ranks(3, {.backend = "virtual", .virtual_run = cluster}, [&](Communicator& comm) {
    Rank<> rank("backup:keep=2", comm, {}, kPlainSgd);
    rank.reducer.start(*rank.optimizer);
    for (int64_t step = 0; step < 10; step = rank.reducer.next_step(step, 10)) {
      rank.micro(rank.model.loss(1), Sync::now, 1);
      rank.reducer.step(*rank.optimizer, rank.finish());
      rank.reducer.finish_step(step);
      ++made[comm.rank()];
    }
    rank.reducer.end();
    comm.barrier();
    const auto seen = rank.reducer.evaluating(*rank.optimizer);
    EXPECT_EQ(rank.model.value(), -10);  // a step a clock
    StrategyReport report;
    rank.strategy->report(report);
    if (comm.rank() == 0) text = report.text();
  });
  EXPECT_EQ(made[0], 10);
  EXPECT_EQ(made[1], 10);
  EXPECT_LT(made[2], 5);
  EXPECT_NE(text.find("late.rank.2"), std::string::npos) << text;
  EXPECT_NE(text.find("lost_weight.rank.2"), std::string::npos) << text;
}

TEST(StrategyReports, NumbersHaveFewDigitsAndNoExponent) {
  StrategyReport report;
  report.add("accepted", 1668240);
  report.add("unique_row_bytes", 198119.44);
  report.add("collision_rate", 0.195203);
  EXPECT_EQ(report.text(), "accepted 1668240, unique_row_bytes 198119, collision_rate 0.1952\n");
}

TEST(StrategyReports, HistogramsAsText) {
  StrategyReport report;
  report.add("late", 2);
  report.add("staleness", {1, 0, 10, 5, 0, 0}, 6);
  EXPECT_EQ(report.text(10),
            "late 2\n"
            "staleness: 16 in all, mean 2.19\n"
            "        0 |#          1\n"
            "        1 |           0\n"
            "        2 |########## 10\n"
            "        3 |#####      5\n");
  StrategyReport wide;
  wide.add("staleness", std::vector<int64_t>(32, 1), 32);
  EXPECT_NE(wide.text().find("      0-1 |"), std::string::npos) << wide.text();
  EXPECT_NE(wide.text().find("      30+ |"), std::string::npos) << wide.text();
  StrategyReport none;
  none.add("staleness", std::vector<int64_t>(4), 4);
  EXPECT_EQ(none.text(), "staleness: nothing\n");
}

}  // namespace
}  // namespace lockstep::distributed
