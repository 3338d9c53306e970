// Which communication hides behind computing, and where a rank's time goes.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/random.h"
#include "distributed/comm/virtual_cluster/overlap.h"

namespace lockstep::distributed::virtual_cluster {
namespace {

using Times = std::vector<double>;

TEST(Overlap, ACollectiveStartsWithItsLastRankAndOccupiesAllLinks) {
  Times busy = {0, 0, 12};
  EXPECT_EQ(collective(Times{3, 5}, std::span(busy).first(2), 2), (Interval{5, 7}));
  EXPECT_EQ(busy, (Times{7, 7, 12}));
  EXPECT_EQ(collective(Times{6, 6, 6}, busy, 1), (Interval{12, 13}));  // the third link is busy
  EXPECT_EQ(busy, (Times{13, 13, 13}));
  // A message takes its rank's link only, though it waits for a partner.
  EXPECT_EQ(collective(Times{14, 20}, std::span(busy).first(1), 3), (Interval{20, 23}));
  EXPECT_EQ(busy, (Times{23, 13, 13}));
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
    Times link = {0};
    const Interval runs[] = {collective(Times{ready}, link, 0.2 * backward),
                             collective(Times{start + forward + backward}, link, 1e-3 * forward)};
    const Interval step = {start, std::max(runs[1].end, start + forward + backward)};
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
