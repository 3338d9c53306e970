#include "data/loader.h"

#include "data/prefetcher.h"

#include "core/allocator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <numeric>
#include <set>
#include <stdexcept>

namespace lockstep::data {
namespace {

std::shared_ptr<const TokenWindows> windows(int64_t count, int64_t context) {
  std::vector<int32_t> tokens(count + context);
  std::iota(tokens.begin(), tokens.end(), 0);
  return std::make_shared<TokenWindows>(tokens, context);
}

struct Seen {
  int64_t step, first_sample;
  std::vector<int32_t> inputs, targets;
  bool operator==(const Seen&) const = default;
};
Seen copy_of(const TokenBatch& batch) {
  return {batch.step, batch.first_sample, values<int32_t>(batch.inputs),
          values<int32_t>(batch.targets)};
}

// What the loader must serve, straight from the sampler.
std::vector<Seen> expected(const SamplerOptions& options, int64_t steps, int64_t context) {
  std::vector<Seen> all;
  for (int64_t step = 0; step < steps; ++step)
    for (int micro = 0; micro < options.micro_batches; ++micro) {
      Seen seen{.step = step};
      std::vector<int64_t> samples;
      Sampler(options).micro_batch(step, micro, samples, seen.first_sample);
      for (int64_t sample : samples)
        for (int64_t t = 0; t < context; ++t) {
          seen.inputs.push_back(static_cast<int32_t>(sample + t));
          seen.targets.push_back(static_cast<int32_t>(sample + t + 1));
        }
      all.push_back(seen);
    }
  return all;
}

constexpr SamplerOptions kOptions{
    .samples = 21, .global_batch = 8, .ranks = 2, .rank = 1, .micro_batches = 4};

TEST(Loader, ServesTheSamplersMicroBatchesInOrder) {
  Loader loader(windows(21, 5), kOptions, {});
  int64_t empty = 0;
  for (const Seen& seen : expected(kOptions, 12, 5)) {
    const TokenBatch& batch = loader.next();
    ASSERT_EQ(copy_of(batch), seen);
    ASSERT_EQ(batch.tokens(), static_cast<int64_t>(seen.inputs.size()));
    empty += batch.rows() == 0;
  }
  EXPECT_GT(empty, 0) << "the short steps, of 5 samples for 8 pieces, were to be among them";
}

TEST(Loader, ContinuesFromAnyStep) {
  const std::vector<Seen> all = expected(kOptions, 9, 5);
  for (int64_t first = 0; first < 9; ++first) {
    Loader loader(windows(21, 5), kOptions, {.first_step = first, .ahead = 1});
    for (size_t i = first * 4; i < all.size(); ++i)
      ASSERT_EQ(copy_of(loader.next()), all[i]) << "from step " << first;
  }
}

TEST(Loader, ABatchIsValidUntilTheCallAfterNext) {
  const std::vector<Seen> all = expected(kOptions, 25, 5);
  Loader loader(windows(21, 5), kOptions, {.ahead = 1});
  const TokenBatch* before = &loader.next();
  for (size_t i = 1; i < all.size(); ++i) {
    const TokenBatch* now = &loader.next();
    std::this_thread::yield();  // gives the thread its chance to overwrite too early
    ASSERT_EQ(copy_of(*before), all[i - 1]);
    before = now;
  }
}

TEST(Loader, ReusesItsBatches) {
  Loader loader(windows(24, 5), {.samples = 24, .global_batch = 8, .micro_batches = 2},
                {.ahead = 3});
  std::set<const TokenBatch*> batches;
  for (int i = 0; i < 50; ++i) batches.insert(&loader.next());
  EXPECT_EQ(batches.size(), 5u);
  const int64_t before = host_allocator().stats().requests;
  for (int i = 0; i < 50; ++i) loader.next();
  EXPECT_EQ(host_allocator().stats().requests, before);
}

TEST(Loader, EndsCleanlyAtAnyTime) {
  for (int served = 0; served < 20; ++served) {
    Loader loader(windows(21, 5), kOptions, {});
    for (int i = 0; i < served; ++i) loader.next();
  }
}

TEST(Loader, RefusesSamplesThatAreNotThere) {
  EXPECT_THROW(Loader(windows(20, 5), kOptions, {}), UsageError);
  EXPECT_THROW(Loader(windows(20, 5), {.samples = 0}, {}), UsageError);
  EXPECT_THROW(Loader(nullptr, {.samples = 1}, {}), UsageError);
  EXPECT_THROW(Loader(windows(20, 5), {.samples = 1}, {.first_step = -1}), UsageError);
  EXPECT_THROW(Loader(windows(20, 5), {.samples = 1}, {.ahead = 0}), UsageError);
}

TEST(Prefetcher, ForwardsAnErrorAfterWhatCameBefore) {
  int made = 0;
  Prefetcher<int> prefetcher(std::vector<int>(4), [&](int& slot) {
    if (made == 3) throw std::runtime_error("no more");
    slot = made++;
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(prefetcher.next(), i);
  for (int i = 0; i < 2; ++i) EXPECT_THROW(prefetcher.next(), std::runtime_error);
}

TEST(Prefetcher, FillsAheadAndThenSleeps) {
  std::atomic<int> made = 0;
  const auto cpu_seconds = [] {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  };  // all threads
  Prefetcher<int> prefetcher(std::vector<int>(6), [&](int& slot) { slot = made++; });
  EXPECT_EQ(prefetcher.next(), 0);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (made < 6 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(made, 6) << "as many as there are slots, and no more";
  EXPECT_LT(cpu_seconds() - before, 0.15) << "a busy wait would have used 0.3 s";
}

TEST(Prefetcher, NeedsThreeSlots) {
  EXPECT_THROW(Prefetcher<int>(std::vector<int>(2), [](int&) {}), UsageError);
}

}  // namespace
}  // namespace lockstep::data
