// Which communication hides behind computing, and where a rank's time goes.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/random.h"
#include "distributed/comm/virtual_cluster/overlap.h"

namespace lockstep::distributed::virtual_cluster {
namespace {

using Times = std::vector<double>;

// Times in milliseconds, so that all of them are exact.
TEST(KnownFaults, O45_ThreeBucketsOnOneLink) {
  struct Case {
    double exchange, end, exposed;
  };
  for (const Case& c : {Case{15, 55, 25}, {10, 40, 10}, {11, 43, 13}, {4, 34, 4}}) {
    SCOPED_TRACE(c.exchange);
    const std::vector<Interval> runs = queued(Times{10, 20, 30}, Times(3, c.exchange));
    EXPECT_EQ(runs.back().end, c.end);
    IntervalSet communication;
    for (const Interval& run : runs) communication.add(run);
    const StepTimes times = account({0, c.end}, {{0, 30}}, communication);
    EXPECT_EQ(times.compute, 30);
    EXPECT_EQ(times.compute + times.wait, c.end);
    EXPECT_EQ(times.exposed, c.exposed);
    EXPECT_EQ(times.hidden, 3 * c.exchange - c.exposed);
    EXPECT_EQ(times.idle(), 0);
  }
}

TEST(KnownFaults, O45_WithoutOverlapAllOfItIsExposed) {
  for (const double exchange : {15, 10, 11, 4}) {
    const std::vector<Interval> runs = queued(Times{30, 30, 30}, Times(3, exchange));
    EXPECT_EQ(runs.back().end, 30 + 3 * exchange);
    const StepTimes times = account({0, runs.back().end}, {{0, 30}}, {runs[0], runs[1], runs[2]});
    EXPECT_EQ(times.exposed, 3 * exchange);
    EXPECT_EQ(times.hidden, 0);
  }
}

TEST(Overlap, BucketsAreReadyAtTheirShareOfBackward) {
  EXPECT_EQ(ready_shares(std::vector<int64_t>{100, 300, 600}), (Times{0.1, 0.4, 1}));
  EXPECT_EQ(ready_shares(std::vector<int64_t>{7}), (Times{1}));
  EXPECT_EQ(ready_shares(std::vector<int64_t>{0, 0}), (Times{1, 1}));
  EXPECT_TRUE(ready_shares({}).empty());
}

TEST(Overlap, ACollectiveStartsWithItsLastRankAndOccupiesAllLinks) {
  Times busy = {0, 0, 12};
  EXPECT_EQ(collective(Times{3, 5}, std::span(busy).first(2), 2), (Interval{5, 7}));
  EXPECT_EQ(busy, (Times{7, 7, 12}));
  EXPECT_EQ(collective(Times{6, 6, 6}, busy, 1), (Interval{12, 13}));  // the third link is busy
  EXPECT_EQ(busy, (Times{13, 13, 13}));
}

TEST(Overlap, WaitingForASlowerRankIsNotCommunication) {
  // Computes for 10, its all-reduce starts with the slower rank at 13 and takes 2.
  const StepTimes times = account({0, 15}, {{0, 10}}, {{13, 15}});
  EXPECT_EQ(times.wait, 5);
  EXPECT_EQ(times.exposed, 2);
  EXPECT_EQ(times.idle(), 3);
  EXPECT_EQ(times.utilisation(), 10.0 / 15);
}

TEST(Overlap, OnlyWhatLiesWithinTheStepCountsAndNothingTwice) {
  const StepTimes times =
      account({10, 20}, {{0, 12}, {14, 16}, {19, 30}}, {{5, 13}, {11, 15}, {18, 40}});
  EXPECT_EQ(times.compute, 2 + 2 + 1);
  EXPECT_EQ(times.wait, 5);
  EXPECT_EQ(times.hidden, 2 + 1 + 1);
  EXPECT_EQ(times.exposed, 2 + 1);
  EXPECT_EQ(account({5, 5}, {}, {}).utilisation(), 1);
}

/// Against counting ticks of an integer clock one by one.
TEST(Overlap, RandomIntervalsAgreeWithCountingTicks) {
  const Random random(5, RandomStream::tests);
  uint64_t draw = 0;
  for (int trial = 0; trial < 500; ++trial) {
    constexpr int kTicks = 40;
    std::vector<int> computes(kTicks, 0), sends(kTicks, 0);
    IntervalSet compute, communication;
    for (int i = 0; i < 6; ++i)
      for (const auto& [ticks, set] : {std::pair{&computes, &compute}, {&sends, &communication}}) {
        const int begin = static_cast<int>(random.below(kTicks, draw++));
        const int end = begin + static_cast<int>(random.below(8, draw++));
        set->add({double(begin), double(end)});
        for (int t = begin; t < std::min(end, kTicks); ++t) (*ticks)[static_cast<size_t>(t)] = 1;
      }
    StepTimes expected;
    constexpr int kBegin = 5, kEnd = 35;
    for (size_t t = kBegin; t < kEnd; ++t) {
      expected.compute += computes[t];
      expected.wait += 1 - computes[t];
      expected.hidden += computes[t] * sends[t];
      expected.exposed += (1 - computes[t]) * sends[t];
    }
    const StepTimes times = account({kBegin, kEnd}, compute, communication);
    EXPECT_EQ(times.compute, expected.compute);
    EXPECT_EQ(times.wait, expected.wait);
    EXPECT_EQ(times.hidden, expected.hidden);
    EXPECT_EQ(times.exposed, expected.exposed);
    for (size_t i = 1; i < compute.intervals().size(); ++i)
      EXPECT_LT(compute.intervals()[i - 1].end, compute.intervals()[i].begin);
  }
}

TEST(Overlap, UnderRoundingComputingAndWaitingStillAddUpAndNothingIsNegative) {
  const Random random(6, RandomStream::tests);
  for (uint64_t i = 0; i < 2000; ++i) {
    const double forward = random.uniform53(3 * i) * 0.1, backward = random.uniform53(3 * i + 1);
    const double start = random.uniform53(3 * i + 2) * 1e4,
                 ready = start + forward + 0.3 * backward;
    const std::vector<Interval> runs =
        queued(Times{ready, start + forward + backward}, Times{0.2 * backward, 1e-3 * forward});
    const Interval step = {start, std::max(runs.back().end, start + forward + backward)};
    const StepTimes times =
        account(step, {{start, start + forward}, {start + forward, start + forward + backward}},
                {runs[0], runs[1]});
    EXPECT_DOUBLE_EQ(times.compute + times.wait, step.length());
    EXPECT_GE(times.exposed, 0);
    EXPECT_LE(times.exposed, times.wait);
    EXPECT_GE(times.wait, 0);
  }
}

}  // namespace
}  // namespace lockstep::distributed::virtual_cluster
