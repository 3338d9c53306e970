// What every registered strategy promises, on 1 to 4 ranks. A new strategy is tested by existing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cctype>
#include <cmath>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "autograd/leaf.h"
#include "autograd/no_grad.h"
#include "core/kernels/reduce.h"
#include "core/memory_state.h"
#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "distributed/control.h"
#include "distributed/strategies/on_service.h"
#include "models.h"
#include "optim/optimizer.h"
#include "precision.h"

namespace lockstep::distributed {
namespace {

using autograd::backward;
using Setting = std::tuple<std::string, int, std::string>;

// The backend of the test that runs: see StrategyContract.
std::string backend = "threads";
void run_on(int ranks, CommOptions options, const RankFunction& function) {
  options.backend = backend;
  run_ranks(ranks, options, function);
}
void run_on(int ranks, const RankFunction& function) { run_on(ranks, CommOptions{}, function); }

constexpr double kSamples = 4;  // of a micro-batch
const optim::OptimizerOptions kAdam{.lr = 1e-2, .weight_decay = 0.1};

// One rank that trains the small net.
struct Trainer {
  Trainer(Communicator& c, const std::string& spec, uint64_t seed = 1,
          const ExchangeOptions& exchange = {}, const optim::Precision& precision = {})
      : comm(c),
        net(seed),
        params(net, precision),
        strategy(make_strategy(spec)),
        reducer(params, c, *strategy,
                {.bucket_bytes = 1500, .first_bucket_bytes = 300, .exchange = exchange}),
        optimizer(optim::make_optimizer("adamw", params.all(), kAdam)) {
    reducer.start(*optimizer);
  }

  // Step number s uses micro-batches s·n·k … of the data; each rank takes k in a row.
  StepVerdict step(int64_t s, int micros = 1) {
    const int64_t first = (s * comm.size() + comm.rank()) * micros;
    for (int k = 0; k < micros; ++k) {
      const auto micro = reducer.micro({.sync = k + 1 == micros ? Sync::now : Sync::later,
                                        .weight = kSamples,
                                        .scale = scaler.scale()});
      backward(scaler.scale(net.loss_sum(first + k)));
    }
    StepVerdict verdict = reducer.finish_backward(scaler);
    verdict.clip(reducer.grad_norm(verdict), 1.0);
    reducer.step(*optimizer, verdict);
    reducer.finish_step(s);
    return verdict;
  }
  void state(StateIo& io) {
    Tensor parameters = params.all().param;
    io.flat("parameters", parameters, Fold::replicated);
    optimizer->state(io);
    strategy->state(io);
  }
  Floats weights() const { return floats(params.all().param); }

  Communicator& comm;
  SmallNet net;
  optim::FlatParams params;
  std::unique_ptr<SyncStrategy> strategy;
  Reducer reducer;
  std::unique_ptr<Optimizer> optimizer;
  optim::GradScaler scaler{1, 8 * kSamples};
};

// Every rank's weights after some steps.
std::vector<Floats> train(const std::string& spec, int ranks, int64_t steps, int micros = 1,
                          const ExchangeOptions& exchange = {},
                          const optim::Precision& precision = {}) {
  std::vector<Floats> weights(static_cast<size_t>(ranks));
  run_on(ranks, [&](Communicator& comm) {
    const ThreadBudget budget(1);
    Trainer trainer(comm, spec, 1, exchange, precision);
    for (int64_t s = 0; s < steps; ++s) trainer.step(s, micros);
    weights[comm.rank()] = trainer.weights();
  });
  return weights;
}

class StrategyContract : public testing::TestWithParam<Setting> {
 public:
  StrategyContract() { backend = std::get<2>(GetParam()); }
  ~StrategyContract() override { backend = "threads"; }

 protected:
  std::string spec() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  int64_t interval() const { return make_strategy(spec())->steps_between_sync(); }
};

// Settings that change what is promised, or how; beside those of the registry with theirs.
const std::vector<std::string> kVariants = {
    "delayed:0",
    "delayed:3",
    "async:bound=0",
    "async:bound=1",
    "backup:keep=1",
    "local_sgd:1",
    "local_sgd:every=2,warmup=2,moments=average",
    "diloco:every=2,moments=reset,nesterov=off,outer_decay=0.95",
    "gossip:2",
    "onebit_adam:warmup=3",
    "onebit_adam:warmup=4,code=none",
    "powersgd:rank=1,min_ratio=0",
    "powersgd:warmup=3",
};

using Wanted = bool (*)(const SyncStrategy&);
std::vector<std::string> strategies(Wanted wanted) {
  std::vector<std::string> specs = kVariants, chosen;
  for (const auto& entry : Registry<SyncStrategy>::instance().entries())
    specs.push_back(entry.name);
  for (const std::string& spec : specs)
    if (wanted(*make_strategy(spec))) chosen.push_back(spec);
  return chosen;
}
const auto all_of_them = [](const SyncStrategy&) { return true; };
const auto that_synchronise = [](const SyncStrategy& s) { return s.steps_between_sync() > 0; };
const auto synchronous = [](const SyncStrategy& s) { return s.synchronous(); };
// Whose sums are the ranks' business and not a service's.
const auto summed_by_ranks = [](const SyncStrategy& s) {
  return s.synchronous() && dynamic_cast<const OnService*>(&s) == nullptr;
};
// Where real time decides which gradient comes first.
const auto by_real_time = [](const SyncStrategy& s) {
  return s.verdict_scope() == VerdictScope::this_rank &&
         dynamic_cast<const OnService*>(&s) != nullptr;
};
const auto by_order = [](const SyncStrategy& s) { return !by_real_time(s); };
const std::vector<std::string> kBackends = {"threads", "virtual"};

auto settings(Wanted wanted, const std::vector<int>& ranks,
              const std::vector<std::string>& backends = kBackends) {
  return testing::Combine(testing::ValuesIn(strategies(wanted)), testing::ValuesIn(ranks),
                          testing::ValuesIn(backends));
}
std::string name_of_setting(const testing::TestParamInfo<Setting>& info) {
  std::string name = std::get<0>(info.param);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return fmt::format("{}_{}_on_{}", name, std::get<1>(info.param), std::get<2>(info.param));
}

// The promises, by whom they bind.
class SeveralRanks : public StrategyContract {};
class WithSyncPoints : public StrategyContract {};
class Synchronous : public StrategyContract {};
class SynchronousAlone : public StrategyContract {};
class SummedByRanks : public StrategyContract {};
class Repeatable : public StrategyContract {};
INSTANTIATE_TEST_SUITE_P(Contract, StrategyContract, settings(all_of_them, {1, 2, 3, 4}),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(Contract, SeveralRanks, settings(all_of_them, {2, 3, 4}), name_of_setting);
INSTANTIATE_TEST_SUITE_P(Contract, WithSyncPoints, settings(that_synchronise, {1, 2, 3, 4}),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(Contract, Synchronous, settings(synchronous, {1, 2, 3, 4}),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(Contract, SynchronousAlone, settings(synchronous, {1}), name_of_setting);
INSTANTIATE_TEST_SUITE_P(Contract, SummedByRanks, settings(summed_by_ranks, {1, 2, 3, 4}),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(ByOrder, Repeatable, settings(by_order, {1, 2, 3, 4}), name_of_setting);
INSTANTIATE_TEST_SUITE_P(ByTime, Repeatable, settings(by_real_time, {2, 3, 4}, {"virtual"}),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(Alone, Repeatable, settings(by_real_time, {1}), name_of_setting);

// promise 1
TEST_P(SynchronousAlone, OneRankIsPlainTrainingBitForBit) {
  const ThreadBudget budget(1);
  SmallNet net(1);
  optim::FlatParams params(net);
  const auto optimizer = optim::make_optimizer("adamw", params.all(), kAdam);
  const optim::GradScaler scaler{1, 8 * kSamples};
  for (int64_t s = 0; s < 6; ++s) {
    for (const optim::ParamSlice& slice : params.slices()) {
      const auto i = static_cast<int>(&slice - params.slices().data());
      autograd::leaf_of(params.param(i)).landing = autograd::Landing::overwrite;
    }
    for (int k = 0; k < 2; ++k) backward(scaler.scale(net.loss_sum(2 * s + k)));
    StepVerdict verdict;
    verdict.factor = static_cast<float>(1 / (scaler.scale() * 2 * kSamples));
    verdict.clip(std::sqrt(kernel::sum_of_squares(params.all().grad)) * verdict.factor, 1.0);
    optimizer->step(verdict);
  }
  // However sums on an f32 wire would be made or divided.
  for (const ExchangeOptions& exchange : all_exchanges())
    if (exchange.wire == DType::f32) {
      EXPECT_EQ(train(spec(), 1, 6, 2, exchange)[0], values(params.all().param))
          << describe(exchange);
    }
}

// promise 2
TEST_P(Synchronous, RanksAreMicroBatchesOfOneRankBitForBit) {
  EXPECT_EQ(train(spec(), ranks(), 6)[0], train("allreduce", 1, 6, ranks())[0]);
}

// promise 3
TEST_P(Synchronous, MicroBatchesReduceAsOftenAsOneOnEveryWire) {
  for (const ExchangeOptions& exchange : default_exchanges())
    run_on(ranks(), [&](Communicator& comm) {
      Trainer one(comm, spec(), 1, exchange), four(comm, spec(), 1, exchange);
      const auto calls_of = [&](Trainer& trainer, int micros) {
        comm.reset_stats();
        trainer.step(0, micros);
        return comm.stats()[Verb::all_reduce].calls;
      };
      EXPECT_EQ(calls_of(one, 1), calls_of(four, 4));
    });
}

// promise 4
TEST_P(WithSyncPoints, SameBitsOnAllRanksAfterSynchronisation) {
  for (const optim::Precision& precision : all_precisions())
    for (const ExchangeOptions& exchange : default_exchanges()) {
      const auto weights = train(spec(), ranks(), 3 * interval(), 2, exchange, precision);
      for (const Floats& other : weights)
        EXPECT_EQ(other, weights[0]) << describe(exchange) << " " << name_of(precision.params);
    }
}

TEST_P(SummedByRanks, ANarrowWireChangesGradientsByItsRoundingOnly) {
  // Nothing is divided or lost but digits: one SGD-like step moves as with f32, within 2^-7.
  run_on(ranks(), [&](Communicator& comm) {
    Trainer wide(comm, spec());
    wide.step(0, 2);
    const Floats expected = values(wide.params.all().grad);
    for (const ExchangeOptions& exchange : default_exchanges()) {
      Trainer narrow(comm, spec(), 1, exchange);
      const StepVerdict verdict = narrow.step(0, 2);
      EXPECT_TRUE(verdict.apply);
      const Floats got = values(narrow.params.all().grad);
      const double factor =
          exchange.wire == DType::f16 ? 1.0 / std::bit_ceil(static_cast<unsigned>(ranks())) : 1;
      double error = 0, size = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        error += std::abs(got[i] / factor - double{expected[i]});
        size += std::abs(double{expected[i]});
      }
      EXPECT_LT(error, size * (exchange.wire == DType::f16 ? 0x1p-10 : 0x1p-7))
          << describe(exchange);
      EXPECT_EQ(error == 0, exchange.wire == DType::f32) << describe(exchange);
    }
  });
}

TEST_P(StrategyContract, ItLearns) {
  run_on(ranks(), [&](Communicator& comm) {
    Trainer trainer(comm, spec());
    const auto loss = [&] {
      const autograd::NoGrad off;
      double sum = 0;
      for (int64_t batch = 0; batch < 4; ++batch) sum += trainer.net.loss_sum(batch).item();
      return sum;
    };
    const double before = loss();
    for (int64_t s = 0; s < 40; ++s) {
      {  // the same four micro-batches again and again
        const auto micro =
            trainer.reducer.micro({.weight = kSamples, .scale = trainer.scaler.scale()});
        backward(trainer.scaler.scale(trainer.net.loss_sum((s + comm.rank()) % 4)));
      }
      trainer.reducer.step(*trainer.optimizer, trainer.reducer.finish_backward(trainer.scaler));
      trainer.reducer.finish_step(s);
    }
    EXPECT_LT(loss(), 0.5 * before);
  });
}

// promise 6: bytes of some steps on this wire, over all ranks.
struct Traffic {
  double counted = 0, moved = 0, claimed = 0;
  double claimed_gradients = 0;  // without the verdict's exchange
};
Traffic traffic_of(const std::string& spec, int ranks, int64_t steps,
                   const ExchangeOptions& exchange) {
  Traffic traffic;
  std::mutex mutex;
  run_on(ranks, [&](Communicator& comm) {
    Trainer trainer(comm, spec, 1, exchange);
    const int64_t moved_before = comm.moved_bytes();
    comm.reset_stats();
    // The verdict's exchange comes on top of what the strategy does.
    const double control =
        (comm.size() - 1) * static_cast<double>(sizeof(Control) + trainer.params.slices().size());
    double exchanged = 0;
    for (int64_t s = 0; s < steps; ++s) {
      const VerdictScope scope = trainer.strategy->verdict_scope();
      exchanged += scope == VerdictScope::all_ranks ? control
                   : scope == VerdictScope::meeting ? comm.size() - 1
                                                    : 0;
      trainer.step(s, 2);
    }
    comm.barrier();  // what was on its way has arrived
    const CommStats stats = comm.stats();
    const double claimed = trainer.strategy->bytes_per_step() * static_cast<double>(steps);
    const std::lock_guard lock(mutex);
    traffic.counted += stats.total().wire_bytes;
    traffic.moved += static_cast<double>(comm.moved_bytes() - moved_before);
    traffic.claimed += claimed + exchanged;
    traffic.claimed_gradients += claimed;
  });
  return traffic;
}

TEST_P(StrategyContract, CountedBytesAreMovedBytesAndAtMostWhatIsClaimed) {
  const int64_t steps = 2 * std::max<int64_t>(interval(), 1);
  for (const ExchangeOptions& exchange : default_exchanges()) {
    const Traffic traffic = traffic_of(spec(), ranks(), steps, exchange);
    EXPECT_NEAR(traffic.counted, traffic.moved, 1e-6 * traffic.moved) << describe(exchange);
    EXPECT_LE(traffic.counted, traffic.claimed * (1 + 1e-12)) << describe(exchange);
  }
}

TEST_P(SummedByRanks, ATwoByteWireMovesHalfTheBytes) {
  const Traffic wide = traffic_of(spec(), ranks(), 2, {});
  for (DType wire : {DType::f16, DType::bf16}) {
    const Traffic narrow = traffic_of(spec(), ranks(), 2, {.wire = wire});
    EXPECT_DOUBLE_EQ(narrow.claimed_gradients, wide.claimed_gradients / 2);
    EXPECT_DOUBLE_EQ(wide.counted - narrow.counted, wide.claimed_gradients / 2);
  }
}

TEST_P(StrategyContract, StateSurvivesARoundTrip) {
  const auto round_trip = [&](Communicator& comm, const ExchangeOptions& exchange,
                              const optim::Precision& precision) {
    Trainer trainer(comm, spec(), 1, exchange, precision);
    for (int64_t s = 0; s < 3; ++s) trainer.step(s);
    MemoryState kept, again;
    kept.save([&](StateIo& io) { trainer.state(io); });
    for (int64_t s = 3; s < 6; ++s) trainer.step(s);

    Trainer resumed(comm, spec(), 77, exchange, precision);
    kept.load([&](StateIo& io) { resumed.state(io); });
    resumed.params.bump_versions();
    again.save([&](StateIo& io) { resumed.state(io); });
    EXPECT_TRUE(kept == again);
    for (int64_t s = 3; s < 6; ++s) resumed.step(s);
    // In real time the order in which gradients come is another one.
    if (ranks() == 1 || backend == "virtual" || by_order(*trainer.strategy)) {
      EXPECT_EQ(resumed.weights(), trainer.weights());
    }
  };
  for (const optim::Precision& precision : all_precisions())
    run_on(ranks(),
           [&](Communicator& comm) { round_trip(comm, {.wire = precision.params}, precision); });
}

TEST_P(StrategyContract, ASkippedStepLeavesNoTrace) {
  const auto skip = [&](Communicator& comm, const ExchangeOptions& exchange,
                        const optim::Precision& precision) {
    Trainer trainer(comm, spec(), 1, exchange, precision);
    trainer.step(0);
    MemoryState before, after;
    before.save([&](StateIo& io) { trainer.state(io); });
    {
      const auto micro =
          trainer.reducer.micro({.weight = kSamples, .scale = trainer.scaler.scale()});
      const float factor = comm.rank() == 0 ? std::numeric_limits<float>::infinity() : 1.0f;
      backward(ops::scale(trainer.net.loss_sum(comm.rank()), factor));
    }
    const StepVerdict verdict = trainer.reducer.finish_backward(trainer.scaler);
    const bool everywhere = trainer.strategy->verdict_scope() == VerdictScope::all_ranks;
    EXPECT_EQ(verdict.apply, !everywhere && comm.rank() != 0);
    const Floats weights = trainer.weights();
    trainer.reducer.step(*trainer.optimizer, verdict);
    after.save([&](StateIo& io) { trainer.state(io); });
    if (by_order(*trainer.strategy)) {
      EXPECT_EQ(before == after, !verdict.apply);
    } else if (verdict.apply || ranks() == 1) {  // others' steps may have come; clocks go on
      EXPECT_EQ(weights == trainer.weights(), !verdict.apply);
    }
  };
  for (const optim::Precision& precision : all_precisions())
    for (const ExchangeOptions& exchange : default_exchanges())
      run_on(ranks(), [&](Communicator& comm) { skip(comm, exchange, precision); });
}

TEST_P(SeveralRanks, ARankWithoutDataTakesPart) {
  run_on(ranks(), {.timeout = std::chrono::seconds(10)}, [&](Communicator& comm) {
    Trainer trainer(comm, spec());
    const int64_t mine = 2 + 2 * comm.rank();
    for (int64_t s = 0;; ++s) {
      if (s < mine) {
        const auto micro =
            trainer.reducer.micro({.weight = kSamples, .scale = trainer.scaler.scale()});
        backward(trainer.scaler.scale(trainer.net.loss_sum(s * ranks() + comm.rank())));
      }
      const StepVerdict verdict = trainer.reducer.finish_backward(trainer.scaler);
      if (trainer.reducer.exhausted(verdict)) break;
      trainer.reducer.step(*trainer.optimizer, verdict);
      trainer.reducer.finish_step(s);
    }
    for (float w : trainer.weights()) ASSERT_TRUE(std::isfinite(w));
  });
}

// promise 8
TEST_P(SeveralRanks, AFailingRankEndsAllAndIsThrown) {
  const auto start = Clock::now();
  try {
    run_on(ranks(), [&](Communicator& comm) {
      Trainer trainer(comm, spec());
      for (int64_t s = 0; s < 100; ++s) {
        if (s == 3 && comm.rank() == ranks() - 1) throw std::domain_error("rank went mad");
        trainer.step(s);
      }
      comm.barrier();
    });
    FAIL() << "nothing was thrown";
  } catch (const std::domain_error& e) {
    EXPECT_STREQ(e.what(), "rank went mad");
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

TEST(Strategies, AStalledRankIsNamedWithWhatItLastDid) {
  for (const std::string& spec : strategies(summed_by_ranks)) {
    std::vector<std::string> texts(2);
    run_on(2, {.timeout = std::chrono::milliseconds(500)}, [&](Communicator& comm) {
      try {
        Trainer trainer(comm, spec);
        for (int64_t s = 0; s < 5; ++s) {
          if (s == 3 && comm.rank() == 1)
            std::this_thread::sleep_for(std::chrono::milliseconds(1200));
          trainer.step(s);
        }
      } catch (const SystemError& e) {
        EXPECT_EQ(e.fault(), Fault::communication);
        EXPECT_EQ(e.site().rank, 1);
        texts[comm.rank()] = e.what();
      }
    });
    for (const std::string& text : texts) {
      EXPECT_NE(text.find("rank 1 of 2 did not arrive at all_reduce #"), std::string::npos) << text;
      EXPECT_NE(text.find("(backward of step 2)"), std::string::npos) << text;
    }
  }
}

TEST_P(Repeatable, TheSameRunTwiceGivesTheSameBits) {
  EXPECT_EQ(train(spec(), ranks(), 5), train(spec(), ranks(), 5));
}

TEST(KnownFaults, O38_TwentyStepsTwiceGiveTheSameBits) {
  for (const std::string& spec : strategies(by_order))
    EXPECT_EQ(train(spec, 2, 20, 2), train(spec, 2, 20, 2)) << spec;
}

TEST(Strategies, HelpListsThemAndUnknownOnesAreRefused) {
  const std::string help = Registry<SyncStrategy>::instance().help();
  for (const char* name : {"allreduce", "naive"}) EXPECT_NE(help.find(name), std::string::npos);
  EXPECT_THROW(make_strategy("telepathy"), UsageError);
  EXPECT_THROW(make_strategy("allreduce:every=3"), UsageError);
}

TEST(Strategies, DelayedByNothingIsAllReduceBitForBit) {
  for (const optim::Precision& precision : all_precisions())
    for (const ExchangeOptions& exchange : default_exchanges())
      EXPECT_EQ(train("delayed:0", 3, 5, 2, exchange, precision),
                train("allreduce", 3, 5, 2, exchange, precision))
          << describe(exchange);
}

TEST(Strategies, NaiveAndBucketedGiveTheSameBits) {
  for (const ExchangeOptions& exchange : default_exchanges())
    EXPECT_EQ(train("naive", 3, 5, 1, exchange), train("allreduce", 3, 5, 1, exchange))
        << describe(exchange);
}

}  // namespace
}  // namespace lockstep::distributed
