// What strategies do about waiting, on the virtual cluster.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "distributed/comm/virtual_cluster/run.h"
#include "rank.h"

namespace lockstep::distributed {
namespace {

using virtual_cluster::Cluster;
using virtual_cluster::Run;
using virtual_cluster::StepTimes;

std::shared_ptr<Run> modelled(const std::string& cluster, int ranks) {
  return std::make_shared<Run>(Cluster::parse(cluster), ranks, uint64_t{1});
}

struct Outcome {
  StepTimes times;  // of all ranks and steps
  double end = 0;   // when the last rank was done, from the first step on
};
Outcome train(const std::string& spec, const std::string& cluster, int ranks, int64_t steps) {
  const auto run = modelled(cluster, ranks);
  std::vector<double> ends(static_cast<size_t>(ranks));
  run_ranks(ranks, {.backend = "virtual", .timeout = std::chrono::seconds(20), .virtual_run = run},
            [&](Communicator& comm) {
              const std::vector<Linears::Spec> specs = {{"a", 5000}, {"b", 5000}};
              Rank rank(spec, comm, {.bucket_bytes = 20'000, .first_bucket_bytes = 20'000},
                        kPlainSgd, specs);
              const double begin = *comm.virtual_time();  // all have rank 0's parameters
              for (int64_t s = 0; s < steps; ++s) {
                rank.micro(rank.model.loss({{0, 0.5f}, {1, 0.5f}}), Sync::now, 1);
                rank.step(rank.finish());
              }
              ends[static_cast<size_t>(comm.rank())] = *comm.virtual_time() - begin;
            });
  Outcome outcome{.end = *std::ranges::max_element(ends)};
  for (const auto& rank : run->steps)
    for (const StepTimes& step : rank) outcome.times += step;
  return outcome;
}

TEST(InTime, ModelledTimeDoesNotChangeTheBits) {
  const auto weights = [](const std::string& spec, const CommOptions& options) {
    std::vector<Floats> all(3);
    run_ranks(3, options, [&](Communicator& comm) {
      const ThreadBudget budget(1);
      Rank<SmallNet> rank(spec, comm, {.bucket_bytes = 1500}, {.lr = 0.02, .momentum = 0.9},
                          uint64_t{1});
      for (int64_t s = 0; s < 8; ++s) {
        rank.micro(rank.model.loss_sum(3 * s + comm.rank()), Sync::now, 4);
        rank.step(rank.finish());
      }
      all[static_cast<size_t>(comm.rank())] = rank.weights();
    });
    return all;
  };
  for (const char* spec : {"delayed:0", "delayed:2", "local_sgd:3,moments=average", "diloco:3",
                           "gossip:1", "gossip:2"}) {
    const auto run = modelled("compute=10ms,jitter=lognormal:0.5,slow=1:1.5", 3);
    EXPECT_EQ(weights(spec, {.backend = "virtual", .virtual_run = run}), weights(spec, {})) << spec;
  }
}

// 40 kB of gradients at 2 MB/s: 20 ms an all-reduce between two ranks, beside 30 ms of computing.
TEST(InTime, DelayedByOneStepHidesItsExchangesBehindTheNext) {
  const char* cluster = "compute=30ms,latency=1us,bandwidth=2MB";
  const Outcome now = train("allreduce", cluster, 2, 20),
                later = train("delayed:1", cluster, 2, 20);
  const Outcome none = train("delayed:0", cluster, 2, 20);
  EXPECT_EQ(none.end, now.end);
  EXPECT_NEAR(now.end, 20 * 0.040, 0.005);  // half of it hides behind the second half of backward
  EXPECT_NEAR(later.end, 20 * 0.030, 0.005);
  EXPECT_LT(later.times.exposed, 0.1 * now.times.exposed);
  EXPECT_NEAR(later.times.hidden, 2 * 19 * 0.020, 0.01);
}

// Exchanges longer than a step: the delay hides what fits, and the link is the limit.
TEST(InTime, WhatDoesNotFitBehindAStepIsExposed) {
  const char* cluster = "compute=30ms,latency=1us,bandwidth=1MB";  // 40 ms an all-reduce
  EXPECT_NEAR(train("delayed:1", cluster, 2, 20).end, 0.030 + 19 * 0.040, 0.01);
}

TEST(InTime, NeighboursAbsorbJitterThatStopsAllWhoAllReduce) {
  const char* cluster = "compute=100ms,jitter=exponential:0.5,latency=1us,bandwidth=1000GB";
  const double all = train("allreduce", cluster, 8, 60).end;
  const double one = train("gossip:1", cluster, 8, 60).end;
  const double alone = train("local_sgd:60", cluster, 8, 60).end;
  EXPECT_LT(one, 0.95 * all);
  EXPECT_LT(alone, 1.01 * all);
}

}  // namespace
}  // namespace lockstep::distributed
