#include "data/sampler.h"

#include "data/metrics.h"

#include "core/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace lockstep::data {
namespace {

using Samples = std::vector<int64_t>;

Samples micro_batch(const SamplerOptions& options, int64_t step, int micro = 0) {
  Samples samples;
  int64_t first = -1;
  Sampler(options).micro_batch(step, micro, samples, first);
  return samples;
}

// All samples of one rank in an epoch.
Samples epoch_of(const SamplerOptions& options, int64_t epoch) {
  const int64_t steps = Sampler(options).steps_per_epoch();
  Samples all;
  for (int64_t step = epoch * steps; step < (epoch + 1) * steps; ++step)
    for (int micro = 0; micro < options.micro_batches; ++micro) {
      const Samples some = micro_batch(options, step, micro);
      all.insert(all.end(), some.begin(), some.end());
    }
  return all;
}

Samples shard_samples(int64_t samples, int ranks, Sharding sharding,
                      std::vector<int64_t>* counts = nullptr) {
  Samples all;
  for (int rank = 0; rank < ranks; ++rank) {
    const Shard part = shard(samples, ranks, rank, sharding);
    if (counts != nullptr) counts->push_back(part.count());
    for (int64_t i = 0; i < part.count(); ++i) all.push_back(part.sample(i));
  }
  return all;
}

TEST(KnownFaults, O19_ShardingOfSmallDataSets) {
  std::vector<int64_t> counts;
  EXPECT_EQ(shard_samples(3, 7, Sharding::padded, &counts), (Samples{0, 1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(counts, std::vector<int64_t>(7, 1));
  EXPECT_EQ(shard_samples(4, 9, Sharding::padded), (Samples{0, 1, 2, 3, 0, 1, 2, 3, 0}));
  // Evaluation: each sample once, so the mean of the correct flags is right.
  EXPECT_EQ(shard_samples(5, 2, Sharding::exact), (Samples{0, 1, 2, 3, 4}));
  const double correct[] = {1, 0, 0, 0, 0};
  WeightedMean accuracy;
  for (int rank = 0; rank < 2; ++rank) {
    WeightedMean mine;
    const Shard part = shard(5, 2, rank, Sharding::exact);
    for (int64_t i = 0; i < part.count(); ++i) mine.add(correct[part.sample(i)], 1);
    accuracy.merge(mine);
  }
  EXPECT_DOUBLE_EQ(accuracy.mean(), 0.2);  // 2/6 with a padded sample
  for (Sharding sharding : {Sharding::exact, Sharding::padded}) {
    EXPECT_THROW(shard(5, 0, 0, sharding), UsageError);
    EXPECT_THROW(shard(5, 2, -1, sharding), UsageError);
    EXPECT_THROW(shard(5, 2, 2, sharding), UsageError);
    EXPECT_EQ(shard(0, 2, 1, sharding).count(), 0);
  }
  EXPECT_THROW(Sampler({.samples = 5, .ranks = 0}), UsageError);
  EXPECT_THROW(Sampler({.samples = 5, .ranks = 2, .rank = -1}), UsageError);
  EXPECT_THROW(Sampler({.samples = 5, .ranks = 2, .rank = 2}), UsageError);
  EXPECT_EQ(Sampler({.samples = 0, .ranks = 2}).steps_per_epoch(), 0);
  EXPECT_EQ(micro_batch({.samples = 0, .ranks = 2}, 3), Samples{});
}

TEST(KnownFaults, O20_ShufflePerEpoch) {
  SamplerOptions options{.samples = 100, .global_batch = 10, .ranks = 2, .seed = 7};
  std::set<Samples> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    options.rank = 0;
    Samples both = epoch_of(options, epoch);
    EXPECT_EQ(epoch_of(options, epoch), both) << "same seed, same order";
    options.rank = 1;
    const Samples second = epoch_of(options, epoch);
    both.insert(both.end(), second.begin(), second.end());
    orders.insert(both);
    Samples sorted = both;
    std::sort(sorted.begin(), sorted.end());
    Samples all(100);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(sorted, all) << "disjoint, and all of them";
    EXPECT_NE(both, all) << "shuffled";
  }
  EXPECT_EQ(orders.size(), 3u) << "epochs differ";
  options.rank = 0;
  const Samples before = epoch_of(options, 0);
  options.seed = 8;
  EXPECT_NE(epoch_of(options, 0), before) << "seeds differ";
}

TEST(KnownFaults, O21_MetricsAreMeansOverSamples) {
  WeightedMean loss;  // losses 1, 1, 1, 1, 6 in batches of 2
  loss.add(2, 2);
  loss.add(2, 2);
  loss.add(6, 1);
  EXPECT_DOUBLE_EQ(loss.mean(), 2.0);  // 2.6667 as a mean of batch means
  WeightedMean first, second;          // on two ranks
  first.add(4, 4);
  second.add(6, 1);
  first.merge(second);
  EXPECT_DOUBLE_EQ(first.mean(), 2.0);  // 3.5 as a mean of rank means
  EXPECT_TRUE(std::isnan(WeightedMean().mean())) << "undefined, not 0";
}

// Every way to split a global batch, full or short, sees the same samples in the same order.
TEST(Sampler, AnySplitOfAGlobalBatchSeesTheSameSamples) {
  const SamplerOptions whole{.samples = 50, .global_batch = 24, .seed = 3};
  for (int64_t step = 0; step < 6; ++step) {  // steps 2 and 5 have 2 samples
    const Samples expected = micro_batch(whole, step);
    EXPECT_EQ(expected.size(), step % 3 == 2 ? 2u : 24u);
    for (int ranks : {1, 2, 3, 4, 5})
      for (int micros : {1, 2, 4, 7}) {
        Samples all;
        size_t least = 24, most = 0;
        for (int rank = 0; rank < ranks; ++rank)
          for (int micro = 0; micro < micros; ++micro) {
            SamplerOptions options = whole;
            options.ranks = ranks;
            options.rank = rank;
            options.micro_batches = micros;
            Samples part;
            int64_t first = -1;
            Sampler(options).micro_batch(step, micro, part, first);
            EXPECT_EQ(first, static_cast<int64_t>(all.size()));
            EXPECT_LE(static_cast<int64_t>(part.size()), Sampler(options).largest_micro_batch());
            least = std::min(least, part.size());
            most = std::max(most, part.size());
            all.insert(all.end(), part.begin(), part.end());
          }
        EXPECT_EQ(all, expected);
        EXPECT_LE(most - least, 1u)
            << ranks << " ranks, " << micros << " micro-batches, step " << step;
      }
  }
}

// Promise 2: rank r of N and micro-batch r of one rank with N micro-batches.
TEST(Sampler, ARankSeesWhatAMicroBatchOfOneRankSees) {
  for (int64_t step = 0; step < 3; ++step)
    for (int r = 0; r < 4; ++r)
      EXPECT_EQ(micro_batch({.samples = 21, .global_batch = 8, .ranks = 4, .rank = r}, step),
                micro_batch({.samples = 21, .global_batch = 8, .micro_batches = 4}, step, r));
}

// Promise 3: a rank's samples do not depend on how many micro-batches it works in, short steps
// included.
TEST(Sampler, ARanksSamplesDoNotDependOnItsMicroBatches) {
  for (int rank = 0; rank < 3; ++rank)
    for (int64_t epoch = 0; epoch < 2; ++epoch)
      EXPECT_EQ(
          epoch_of(
              {.samples = 31, .global_batch = 12, .ranks = 3, .rank = rank, .micro_batches = 4},
              epoch),
          epoch_of({.samples = 31, .global_batch = 12, .ranks = 3, .rank = rank}, epoch));
}

TEST(Sampler, TheFirstPieceIsNeverTheShorterOne) {
  EXPECT_EQ(micro_batch({.samples = 1, .global_batch = 8, .ranks = 4, .rank = 0}, 0).size(), 1u);
  EXPECT_EQ(micro_batch({.samples = 1, .global_batch = 8, .ranks = 4, .rank = 3}, 0).size(), 0u);
}

TEST(Sampler, SequentialOrderCountsUp) {
  const SamplerOptions options{
      .samples = 5, .global_batch = 3, .order = SamplerOptions::Order::sequential};
  EXPECT_EQ(micro_batch(options, 0), (Samples{0, 1, 2}));
  EXPECT_EQ(micro_batch(options, 1), (Samples{3, 4}));
  EXPECT_EQ(micro_batch(options, 2), (Samples{0, 1, 2}));
}

TEST(Sampler, RefusesImpossibleSettings) {
  EXPECT_THROW(Sampler({.samples = -1}), UsageError);
  EXPECT_THROW(Sampler({.samples = 1, .global_batch = 0}), UsageError);
  EXPECT_THROW(Sampler({.samples = 1, .micro_batches = 0}),
               UsageError);  // k = 0 of known fault O02
  EXPECT_THROW(Sampler({.samples = 1, .global_batch = int64_t{1} << 62, .ranks = 4}), UsageError);
  EXPECT_THROW(micro_batch({.samples = 1}, -1), UsageError);
  EXPECT_THROW(micro_batch({.samples = 1}, 0, 1), UsageError);
}

}  // namespace
}  // namespace lockstep::data
