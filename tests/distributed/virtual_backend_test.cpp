// The backend `virtual`: what computing and talking take on a modelled cluster, and in which order
// events happen.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "distributed/comm/virtual_cluster/run.h"
#include "rank.h"
#include "tests/support/error_of.h"

namespace lockstep::distributed {
namespace {

using test::error_of;
using virtual_cluster::Cluster;
using virtual_cluster::Run;
using virtual_cluster::StepTimes;

std::shared_ptr<Run> modelled(const std::string& cluster, int ranks, uint64_t seed = 1) {
  return std::make_shared<Run>(Cluster::parse(cluster), ranks, seed);
}
CommOptions on(std::shared_ptr<Run> run, int timeout_ms = 20'000) {
  return {.backend = "virtual",
          .timeout = std::chrono::milliseconds(timeout_ms),
          .virtual_run = std::move(run)};
}

// Computes a micro-batch without doing anything.
void compute(Communicator& comm, int64_t micro, double first_ready = 1) {
  comm.compute_begins({.micro = micro, .first_ready = first_ready});
  comm.compute_reached(1);
}
double now(const Communicator& comm) { return *comm.virtual_time(); }

TEST(Virtual, ComputingMovesTheClockByTheModel) {
  run_ranks(3, on(modelled("compute=90ms,slow=2:2", 3)), [](Communicator& comm) {
    const double factor = comm.rank() == 2 ? 2 : 1;
    comm.compute_begins({.micro = 0, .first_ready = 0.25});
    EXPECT_EQ(now(comm), 0);
    comm.compute_reached(0.25);
    EXPECT_NEAR(now(comm), factor * (0.03 + 0.015), 1e-12);
    comm.compute_reached(1);
    EXPECT_NEAR(now(comm), factor * 0.09, 1e-12);
  });
}

TEST(Virtual, ACollectiveBeginsWithTheLastRankAndCostsWhatTheModelSays) {
  const auto run = modelled("compute=100ms,slow=1:3,latency=1ms,bandwidth=1MB", 2);
  run_ranks(2, on(run), [](Communicator& comm) {
    compute(comm, 0);
    const Tensor x = full({2500}, comm.rank() + 1);  // 10 kB: two rounds of 1 ms + 5 ms
    comm.all_reduce(x)->wait();
    EXPECT_EQ(values(x), std::vector<float>(2500, 3));
    EXPECT_NEAR(now(comm), 0.3 + 0.012, 1e-12);
    comm.step_ends(0);
  });
  EXPECT_NEAR(run->steps[0][0].compute, 0.1, 1e-12);
  EXPECT_NEAR(run->steps[0][0].wait, 0.212, 1e-12);
  EXPECT_NEAR(run->steps[0][0].exposed, 0.012, 1e-12);
  EXPECT_NEAR(run->steps[0][0].hidden, 0, 1e-12);
  EXPECT_NEAR(run->steps[1][0].compute, 0.3, 1e-12);
  EXPECT_NEAR(run->steps[1][0].wait, 0.012, 1e-12);
}

// KnownFaults O45 (b): three buckets, exchanges of so many milliseconds on one link, posted when
// backward has come so far (forward takes 10 ms, backward 20 ms). The time of the step.
StepTimes three_buckets(double exchange, const std::vector<double>& posted) {
  Cluster cluster = Cluster::parse("compute=30ms,bandwidth=1000000GB");
  cluster.latency = exchange / 2e3;  // a ring of two goes in two rounds
  const auto run = std::make_shared<Run>(cluster, 2, 1);
  run_ranks(2, on(run), [&](Communicator& comm) {
    const Tensor x = full({1}, 1);
    comm.compute_begins({.micro = 0, .first_ready = posted.front()});
    std::vector<WorkPtr> works;
    for (const double reached : posted) {
      comm.compute_reached(reached);
      works.push_back(comm.all_reduce(x));
    }
    for (const WorkPtr& work : works) work->wait();
    comm.step_ends(0);
  });
  return run->steps[0][0];
}

TEST(KnownFaults, O45_ThreeBucketsOnOneLink) {
  struct Case {
    double exchange, end, exposed;
  };
  for (const Case& c : {Case{15, 55, 25}, {10, 40, 10}, {11, 43, 13}, {4, 34, 4}}) {
    SCOPED_TRACE(c.exchange);
    const StepTimes times = three_buckets(c.exchange, {0, 0.5, 1});  // ready at 10, 20, 30 ms
    EXPECT_NEAR(times.compute, 0.030, 1e-9);
    EXPECT_NEAR(times.seconds(), c.end / 1e3, 1e-9);
    EXPECT_NEAR(times.exposed, c.exposed / 1e3, 1e-9);
    EXPECT_NEAR(times.hidden, (3 * c.exchange - c.exposed) / 1e3, 1e-9);
    EXPECT_NEAR(times.idle(), 0, 1e-9);
  }
}

TEST(KnownFaults, O45_WithoutOverlapAllOfItIsExposed) {
  for (const double exchange : {15, 10, 11, 4}) {
    const StepTimes times = three_buckets(exchange, {1, 1, 1});
    EXPECT_NEAR(times.seconds(), (30 + 3 * exchange) / 1e3, 1e-9);
    EXPECT_NEAR(times.exposed, 3 * exchange / 1e3, 1e-9);
    EXPECT_NEAR(times.hidden, 0, 1e-9);
  }
}

TEST(Virtual, OneSlowRankOfEightMakesTheStepAsSlow) {
  const auto run = modelled("compute=100ms,slow=7:1.3,latency=0s,bandwidth=1000GB", 8);
  run_ranks(8, on(run), [](Communicator& comm) {
    for (int64_t s = 0; s < 5; ++s) {
      compute(comm, s);
      comm.barrier();
    }
    EXPECT_NEAR(now(comm) / 0.5, 1.30, 1e-9);
  });
}

TEST(Virtual, BooksTakeNoTimeAndDoNotMakeClocksMeet) {
  run_ranks(2, on(modelled("compute=100ms,slow=1:2", 2)), [](Communicator& comm) {
    compute(comm, 0);
    const Untimed books(comm);
    const Tensor x = full({10}, 1);
    comm.all_reduce(x)->wait();
    EXPECT_EQ(values(x), std::vector<float>(10, 2));
    EXPECT_NEAR(now(comm), comm.rank() == 0 ? 0.1 : 0.2, 1e-12);
  });
}

TEST(Virtual, DoneGoesByTheModelledTime) {
  run_ranks(2, on(modelled("compute=100ms,latency=1ms", 2)), [](Communicator& comm) {
    const Tensor x = full({10}, 1);
    const WorkPtr work = comm.all_reduce(x);
    comm.barrier();  // by now it has really happened, and its time has come, too
    EXPECT_TRUE(work->done());
    const WorkPtr later = comm.all_reduce(x);
    EXPECT_FALSE(later->done());
    compute(comm, 0);
    {
      const Untimed meet(comm);
      comm.barrier();
    }
    EXPECT_TRUE(later->done());
  });
}

TEST(Virtual, PartsTalkAmongThemselves) {
  run_ranks(4, on(modelled("compute=100ms,slow=3:2,latency=1ms,bandwidth=1000GB", 4)),
            [](Communicator& comm) {
              const auto part = comm.split(comm.rank() / 2);
              const double before = now(comm);
              compute(comm, 0);
              const Tensor x = full({1}, 1);
              part->all_reduce(x)->wait();
              EXPECT_EQ(values(x), std::vector<float>{2});
              EXPECT_NEAR(now(comm) - before, (comm.rank() < 2 ? 0.1 : 0.2) + 0.002, 1e-9);
            });
}

TEST(Virtual, NeighboursWaitForEachOtherOnly) {
  run_ranks(4, on(modelled("compute=100ms,slow=3:5,latency=1ms,bandwidth=1000GB", 4)),
            [](Communicator& comm) {
              compute(comm, 0);
              const int partner = comm.rank() ^ 1;
              const Tensor in = full({1}, comm.rank()), out = full({1}, -1);
              comm.send_recv(out, partner, in, partner)->wait();
              EXPECT_EQ(values(out), std::vector<float>{static_cast<float>(partner)});
              EXPECT_NEAR(now(comm), (comm.rank() < 2 ? 0.1 : 0.5) + 0.001, 1e-9);
            });
}

// A service that tells who called when.
struct Journal : ServiceLogic {
  explicit Journal(std::vector<int>* who) : calls(who) {}
  bool handle(int rank, ServiceCall& call) override {
    calls->push_back(rank);
    call.version = static_cast<int64_t>(calls->size());
    return true;
  }
  std::vector<int>* calls;
};

TEST(VirtualService, CallsHappenInTheOrderOfTime) {
  for (int cores : {1, 2, 4}) {
    std::vector<int> calls;
    const auto run = modelled("compute=100ms,slow=0:3.05+1:1.7,latency=0s,server-latency=0s", 3);
    run->cores = cores;
    run_ranks(3, on(run), [&](Communicator& comm) {
      const auto port = comm.open_service([&] { return std::make_unique<Journal>(&calls); });
      for (int64_t i = 0; i < 6; ++i) {
        compute(comm, i);
        // Real time is the other way round: the fast ranks are late.
        std::this_thread::sleep_for(std::chrono::milliseconds(comm.rank() * 3));
        ServiceCall call;
        port->call(call);
      }
    });
    // At 305, 610, … for rank 0, 170, 340, … for rank 1, 100, 200, … for rank 2.
    const std::vector<int> expected = {2, 1, 2, 2, 0, 1, 2, 2, 1, 2, 0, 1, 1, 0, 1, 0, 0, 0};
    EXPECT_EQ(calls, expected) << cores;
  }
}

TEST(VirtualService, TheLinkOfTheServiceIsTheBottleneck) {
  const auto run =
      modelled("compute=1ns,server-latency=1ms,server-bandwidth=1MB,bandwidth=1000GB", 4);
  std::vector<int> calls;
  std::vector<double> ends(4);
  run_ranks(4, on(run), [&](Communicator& comm) {
    const auto port = comm.open_service([&] { return std::make_unique<Journal>(&calls); });
    const double begin = now(comm);
    ServiceCall call;
    call.in = full({2500}, 1);  // 10 kB: 10 ms
    ServiceCall look = call;    // does not occupy the link
    look.untimed = true;
    port->call(look);
    port->call(call);
    ends[comm.rank()] = now(comm) - begin;
  });
  // One after the other through the link, then 1 ms to get there and 1 ms for the answer.
  for (int rank = 0; rank < 4; ++rank) EXPECT_NEAR(ends[rank], 0.010 * (rank + 1) + 0.002, 1e-9);
}

TEST(VirtualService, BooksSeeTheServiceAtTheirClockAndTakeNoTime) {
  for (int cores : {1, 2, 3}) {
    std::vector<int> calls;
    std::vector<int64_t> seen;  // by rank 2, at 100, 200, … ms: calls before that, its own included
    const auto run = modelled("compute=100ms,slow=0:3.05+1:1.7,latency=0s,server-latency=0s", 3);
    run->cores = cores;
    run_ranks(3, on(run), [&](Communicator& comm) {
      const auto port = comm.open_service([&] { return std::make_unique<Journal>(&calls); });
      for (int64_t i = 0; i < 6; ++i) {
        compute(comm, i);
        std::this_thread::sleep_for(std::chrono::milliseconds(2 * (3 - comm.rank())));
        ServiceCall call, look;
        look.untimed = true;
        if (comm.rank() < 2) {
          port->call(call);
        } else {
          const double before = now(comm);
          port->call(look);
          EXPECT_EQ(now(comm), before);
          seen.push_back(look.version);
        }
      }
    });
    // Rank 0 calls at 305, 610, …, rank 1 at 170, 340, 510, …
    EXPECT_EQ(seen, (std::vector<int64_t>{1, 3, 4, 7, 8, 10})) << cores;
  }
}

TEST(VirtualService, AllThatTravelsTakesTime) {
  const auto run = modelled("compute=1ns,server-latency=1ms,server-bandwidth=1MB", 1);
  std::vector<int> calls;
  run_ranks(1, on(run), [&](Communicator& comm) {
    const auto port = comm.open_service([&] { return std::make_unique<Journal>(&calls); });
    const double begin = now(comm);
    const std::vector<uint8_t> flags(3000);
    ServiceCall call;
    call.in = full({1000}, 1);
    call.flags = flags;
    call.out = zeros({500});
    port->call(call);
    EXPECT_NEAR(now(comm) - begin, 0.004 + 0.003 + 0.001 + 0.002 + 0.001, 1e-9);
  });
}

// Answers once all ranks have called.
struct Meeting : ServiceLogic {
  explicit Meeting(int size) : ranks(size) {}
  bool handle(int rank, ServiceCall&) override {
    seen |= 1 << rank;
    return seen == (1 << ranks) - 1;
  }
  int ranks, seen = 0;
};

TEST(VirtualService, WhoWaitsGoesOnAtTheTimeOfTheOneThatCameLast) {
  run_ranks(3, on(modelled("compute=100ms,slow=1:4,latency=0s,server-latency=0s", 3)),
            [](Communicator& comm) {
              const auto port = comm.open_service([] { return std::make_unique<Meeting>(3); });
              compute(comm, 0);
              ServiceCall call;
              port->call(call);
              EXPECT_NEAR(now(comm), 0.4, 1e-12);
            });
}

TEST(VirtualService, WhatALaterAnswerThrowsTheOneWhoWaitsGets) {
  struct Moody : ServiceLogic {
    bool handle(int rank, ServiceCall&) override {
      if (rank != 2) return annoyed = annoyed || rank == 1;
      if (annoyed) throw std::domain_error("not any more");
      return false;
    }
    bool annoyed = false;
  };
  run_ranks(3, on(modelled("compute=100ms,slow=1:4,latency=0s,server-latency=0s", 3)),
            [](Communicator& comm) {
              const auto port = comm.open_service([] { return std::make_unique<Moody>(); });
              compute(comm, 0);
              ServiceCall call;
              for (int time = 0; time < 2; ++time) {
                if (comm.rank() == 2) {
                  EXPECT_THROW(port->call(call), std::domain_error);
                } else {
                  port->call(call);
                }
                EXPECT_NEAR(now(comm), 0.4, 1e-12);
              }
            });
}

TEST(VirtualFaults, AllWaitingIsAnErrorAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = error_of<SystemError>([] {
    run_ranks(2, on(modelled("compute=1ns", 2)), [](Communicator& comm) {
      const auto port = comm.open_service([] { return std::make_unique<Meeting>(3); });
      ServiceCall call;
      port->call(call);
    });
  });
  EXPECT_NE(text.find("all ranks wait and none can go on"), std::string::npos) << text;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(VirtualFaults, ARankThatLeavesIsNamed) {
  const std::string text = error_of<SystemError>([] {
    run_ranks(3, on(modelled("compute=1ns", 3)), [](Communicator& comm) {
      if (comm.rank() == 1) return;
      comm.barrier();
    });
  });
  EXPECT_NE(text.find("rank 1 left"), std::string::npos) << text;
}

TEST(VirtualFaults, ARankThatThrowsEndsTheOthersAndIsTheCause) {
  const std::string text = error_of<UsageError>([] {
    run_ranks(4, on(modelled("compute=1ns", 4)), [](Communicator& comm) {
      if (comm.rank() == 2) throw UsageError("[test] rank 2 has had enough");
      comm.barrier();
    });
  });
  EXPECT_EQ(text, "[test] rank 2 has had enough");
}

TEST(VirtualFaults, RanksThatDisagreeAreToldSo) {
  const std::string text = error_of<SystemError>([] {
    run_ranks(2, on(modelled("compute=1ns", 2)),
              [](Communicator& comm) { comm.all_reduce(full({comm.rank() + 1}, 1))->wait(); });
  });
  EXPECT_NE(text.find("all_reduce"), std::string::npos) << text;
}

TEST(VirtualFaults, ARankThatHangsIsNamedWithinTheTimeOut) {
  const std::string text = error_of<SystemError>([] {
    run_ranks(2, on(modelled("compute=1ns", 2), 200), [](Communicator& comm) {
      if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
      comm.barrier();
    });
  });
  EXPECT_NE(text.find("rank 1 still computes"), std::string::npos) << text;
}

TEST(VirtualMemory, NoMoreRanksComputeAtOnceThanThereAreCores) {
  const auto run = modelled("compute=1ms", 16);
  run->cores = 2;
  std::atomic<int> busy{0}, most{0};
  run_ranks(16, on(run), [&](Communicator& comm) {
    for (int64_t s = 0; s < 3; ++s) {
      const int here = ++busy;
      int seen = most.load();
      while (here > seen && !most.compare_exchange_weak(seen, here)) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      compute(comm, s);
      --busy;
      comm.barrier();
    }
  });
  EXPECT_LE(most, 2);
}

// Real time: ranks of the backend `threads` that sleep as long as the model says that they compute,
// against the model. The best of a few, for other processes may want the cores, too.
// Whoever wakes on a core that was handed over may use all of them again.
TEST(Virtual, RanksMayRunOnEveryCore) {
  const int cores = available_cores();
  run_ranks(4, on(modelled("compute=1ms", 4)), [&](Communicator& comm) {
    const Tensor x = full({1}, 1);
    for (int step = 0; step < 20; ++step) {
      compute(comm, step);
      comm.all_reduce(x)->wait();
      EXPECT_EQ(available_cores(), cores);
    }
  });
}

TEST(Virtual, AgreesWithRealTimeWithinFivePercent) {
  constexpr int kRanks = 4, kSteps = 12;
  const auto run =
      modelled("compute=30ms,slow=2:1.3,jitter=lognormal:0.3,latency=0s,bandwidth=1000GB", kRanks);
  run_ranks(kRanks, on(run), [&](Communicator& comm) {
    for (int64_t s = 0; s < kSteps; ++s) {
      compute(comm, s);
      comm.all_reduce(full({1000}, 1))->wait();
      comm.step_ends(s);
    }
  });
  const double forecast = run->timeline.total(0).seconds();
  const virtual_cluster::Durations durations(run->cluster, kRanks, run->seed);
  double best = 1e9;
  for (int attempt = 0; attempt < 5 && best > 1.05 * forecast; ++attempt) {
    const auto begin = std::chrono::steady_clock::now();
    run_ranks(kRanks, [&](Communicator& comm) {
      for (int64_t s = 0; s < kSteps; ++s) {
        using virtual_cluster::Pass;
        std::this_thread::sleep_for(
            std::chrono::duration<double>(durations.seconds(comm.rank(), s, Pass::forward) +
                                          durations.seconds(comm.rank(), s, Pass::backward)));
        comm.all_reduce(full({1000}, 1))->wait();
      }
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  EXPECT_GT(best, 0.999 * forecast);  // nobody sleeps less than asked
  EXPECT_LT(best, 1.05 * forecast);
}

// The same seed gives the same bits and the same times, on however many cores.
TEST(Virtual, RunsRepeatWhateverTheCores) {
  const auto train = [](const std::string& sync, int cores) {
    const auto run = modelled("compute=10ms,jitter=lognormal:0.3,latency=50us,slow=0:1.7", 5, 7);
    run->cores = cores;
    std::vector<Floats> weights(5);
    run_ranks(5, on(run), [&](Communicator& comm) {
      Rank<SmallNet> rank(sync, comm, {.bucket_bytes = 1500, .first_bucket_bytes = 300},
                          {.lr = 0.1}, uint64_t{1});
      for (int64_t s = 0; s < 6; ++s) {
        rank.micro(rank.model.loss_sum(s * 5 + comm.rank()), Sync::now, 4);
        rank.step(rank.finish());
      }
      weights[comm.rank()] = rank.weights();
    });
    std::vector<double> times;
    for (const auto& steps : run->steps)
      for (const StepTimes& t : steps)
        times.insert(times.end(), {t.compute, t.wait, t.exposed, t.hidden});
    EXPECT_EQ(times.size(), 5u * 6 * 4);
    std::multiset<std::tuple<int, double, double>> kept;
    for (int rank = 0; rank < 5; ++rank)
      for (const auto& span : run->timeline.kept(rank))
        kept.emplace(rank, span.time.begin, span.time.end);
    return std::tuple(weights, times, kept);
  };
  for (const std::string sync : {"allreduce", "delayed:2", "gossip", "local_sgd:2"}) {
    const auto one = train(sync, 1);
    for (int cores : {2, 5, 2, 5}) EXPECT_TRUE(one == train(sync, cores)) << sync << cores;
  }
}

}  // namespace
}  // namespace lockstep::distributed
