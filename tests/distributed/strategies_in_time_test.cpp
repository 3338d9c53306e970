// What strategies do about waiting, on the virtual cluster.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "distributed/comm/virtual_cluster/durations.h"
#include "distributed/comm/virtual_cluster/network.h"
#include "distributed/comm/virtual_cluster/run.h"
#include "distributed/control.h"
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

// What jitter costs, from the durations that were drawn: who waits for whom is all that differs.
class UnderJitter : public testing::Test {
 protected:
  static constexpr int kRanks = 8;
  static constexpr int64_t kSteps = 60, kParameters = 10'000, kBytes = 4 * kParameters;

  Outcome trained(const std::string& spec) const { return train(spec, text_, kRanks, kSteps); }
  double seconds(int rank, int64_t step) const {
    return durations_.seconds(rank, step, virtual_cluster::Pass::forward) +
           durations_.seconds(rank, step, virtual_cluster::Pass::backward);
  }
  // Of the slowest rank over these steps, which it makes without waiting.
  double slowest(int64_t begin, int64_t end) const {
    double most = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      double sum = 0;
      for (int64_t s = begin; s < end; ++s) sum += seconds(rank, s);
      most = std::max(most, sum);
    }
    return most;
  }
  // Rounds of so many steps, at whose end all wait for the slowest.
  double rounds_of(int64_t steps) const {
    double sum = 0;
    for (int64_t s = 0; s < kSteps; s += steps) sum += slowest(s, std::min(s + steps, kSteps));
    return sum;
  }
  double all_gather(int64_t bytes_of_each) const {
    const std::vector<int64_t> parts(kRanks, bytes_of_each);
    return network_.all_gather(parts).seconds;
  }

  const std::string text_ =
      "compute=100ms,jitter=exponential:0.5,latency=100us,bandwidth=100MB,algorithm=ring";
  const Cluster cluster_ = Cluster::parse(text_);
  const virtual_cluster::Durations durations_{cluster_, kRanks, 1};
  const virtual_cluster::Network network_{cluster_, kRanks};
};

TEST_F(UnderJitter, AllReduceWaitsForTheSlowestInEveryStep) {
  // Two buckets; the first one's exchange hides behind the last third of the step.
  const double exchanges =
      network_.all_reduce(kBytes / 2).seconds + all_gather(sizeof(Control) + 2);
  EXPECT_NEAR(trained("allreduce").end, rounds_of(1) + kSteps * exchanges, 1e-9);
}

TEST_F(UnderJitter, LocalRoundsWaitForTheSlowestAtTheirEndOnly) {
  const double meeting = all_gather(1) + network_.all_reduce(kBytes).seconds;
  for (int64_t every : {1, 4, 20, 60}) {
    const auto rounds = static_cast<double>(kSteps / every);
    for (const char* name : {"local_sgd", "diloco"}) {
      const std::string spec = name + (":" + std::to_string(every));
      EXPECT_NEAR(trained(spec).end, rounds_of(every) + rounds * meeting, 1e-9) << spec;
    }
  }
  // The slowest of 8 exponential times is H₈ = 2.72 times their mean: 1.86 of such a step. Sums of
  // 20 deviate by 0.5/√20, the largest of 8 normal ones by 1.42 deviations: 1.16.
  EXPECT_NEAR(trained("allreduce").end, 6.0 * 1.86, 6.0 * 0.1);
  EXPECT_NEAR(trained("local_sgd:20").end, 6.0 * 1.16, 6.0 * 0.05);
  // A round that has not ended has cost its ranks their own time and nothing else.
  EXPECT_NEAR(trained("local_sgd:61").end, slowest(0, kSteps), 1e-9);
}

TEST_F(UnderJitter, AWarmUpIsAllReduceInTimeToo) {
  const Outcome synchronous = train("allreduce", text_, kRanks, 20);
  const double meetings = 2 * (all_gather(1) + network_.all_reduce(kBytes).seconds);
  EXPECT_NEAR(trained("local_sgd:20,warmup=20").end,
              synchronous.end + slowest(20, 40) + slowest(40, 60) + meetings, 1e-9);
}

// A rank's message leaves when it and both its partners have come; the longest path through all
// these is the end. It lies between waiting for nobody and waiting for all.
TEST_F(UnderJitter, GossipWaitsForItsPartnersOnly) {
  const double message = network_.message(kBytes + 8, kRanks).seconds;
  for (int neighbours : {1, 2}) {
    std::vector<double> now(kRanks), issued(kRanks);
    for (int64_t s = 0; s < kSteps; ++s) {
      for (int rank = 0; rank < kRanks; ++rank) issued[rank] = now[rank] + seconds(rank, s);
      const int hop = 1 << (s % 3);
      // At a distance of n/2 both neighbours are one.
      const int messages = neighbours == 2 && 2 * hop != kRanks ? 2 : 1;
      for (int rank = 0; rank < kRanks; ++rank)
        now[rank] = std::max({issued[rank], issued[(rank + hop) % kRanks],
                              issued[(rank + kRanks - hop) % kRanks]}) +
                    messages * message;
    }
    const double expected = *std::ranges::max_element(now);
    const double end = trained("gossip:" + std::to_string(neighbours)).end;
    EXPECT_NEAR(end, expected, 1e-9) << neighbours;
    EXPECT_GT(end, slowest(0, kSteps) + kSteps * message);
    EXPECT_LT(end, rounds_of(1) + kSteps * neighbours * message);
  }
  EXPECT_LT(trained("gossip:1").end, 0.95 * trained("allreduce").end);
}

}  // namespace
}  // namespace lockstep::distributed
