#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "apps/compare/statistics/curves.h"
#include "apps/compare/statistics/paired.h"
#include "apps/compare/statistics/quantiles.h"
#include "apps/compare/statistics/rates.h"
#include "core/check.h"

namespace lockstep::apps::statistics {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

PairedTest shifted(double shift, double sign = 1) {
  std::vector<double> d{.010, .014, .006, .012, .008};
  for (double& x : d) x = sign * (x + shift);
  return test_margin(d, 0.02, 0.05);
}

TEST(KnownFaults, O53_EquivalenceTestsAndIntervals) {
  const PairedTest far_inside = shifted(0);
  EXPECT_NEAR(far_inside.spread.sd, 0.0031623, 5e-8);
  EXPECT_NEAR(far_inside.spread.standard_error, 0.0014142, 5e-8);
  EXPECT_NEAR(far_inside.p_equivalent, 0.0010553, 5e-8);
  EXPECT_EQ(far_inside.shown, Shown::equivalent);

  const PairedTest just_inside = shifted(.0065);
  EXPECT_NEAR(just_inside.p_equivalent, 0.0342936, 5e-8);
  EXPECT_EQ(just_inside.shown, Shown::equivalent);
  // The case's ends are those of quantiles of four digits: 2.132 for 2.1318468.
  EXPECT_NEAR(just_inside.interval->low, .0134849, 3e-7);
  EXPECT_NEAR(just_inside.interval->high, .0195149, 3e-7);
  EXPECT_NEAR(just_inside.interval->high, .0165 + 2.1318468 * std::sqrt(2e-6), 1e-9);
  EXPECT_NEAR(mean_interval(just_inside.spread, 0.95)->high, .0204266, 3e-7);

  const PairedTest just_outside = shifted(.007);
  EXPECT_NEAR(just_outside.p_equivalent, 0.0505958, 5e-8);
  EXPECT_EQ(just_outside.shown, Shown::nothing);

  const PairedTest worse = shifted(.02);
  EXPECT_NEAR(worse.p_above, 0.0010553, 5e-8);
  EXPECT_EQ(worse.shown, Shown::above);

  for (const double shift : {0.0, .0065, .007, .02}) {
    const PairedTest one = shifted(shift), other = shifted(shift, -1);
    EXPECT_NEAR(one.p_equivalent, other.p_equivalent, 1e-15);
    EXPECT_NEAR(one.p_above, other.p_below, 1e-15);
  }
  EXPECT_EQ(shifted(.02, -1).shown, Shown::below);

  const PairedTest single = test_margin(std::vector{.001}, 0.02);
  EXPECT_EQ(single.shown, Shown::undefined);
  EXPECT_FALSE(single.interval);
  EXPECT_EQ(single.p_equivalent, 1);

  const PairedTest two = test_margin(std::vector{.001, .003}, 0.02);
  EXPECT_NEAR(two.p_equivalent, 0.0176657, 5e-8);
  EXPECT_EQ(two.shown, Shown::equivalent);

  const PairedTest same = test_margin(std::vector<double>(5, 0.0), 0.02);
  EXPECT_EQ(same.shown, Shown::equivalent);
  EXPECT_TRUE(same.spread.no_variance);
  EXPECT_EQ(same.p_equivalent, 0);
  EXPECT_EQ(same.interval->low, 0);
  EXPECT_EQ(test_margin(std::vector<double>(5, .03), 0.02).shown, Shown::above);
  EXPECT_EQ(test_margin(std::vector<double>(5, .02), 0.02).shown, Shown::nothing);

  for (const double bad : {kNan, std::numeric_limits<double>::infinity()}) {
    const PairedTest diverged = test_margin(std::vector{.001, bad, .002}, 0.02);
    EXPECT_EQ(diverged.shown, Shown::undefined);
    EXPECT_FALSE(diverged.interval);
  }
}

TEST(PairedDifferences, AreTakenSeedBySeedAndOnlyBetweenTheSameSeeds) {
  EXPECT_EQ(paired_differences({{2, 5.0}, {1, 4.0}}, {{1, 1.0}, {2, 3.0}}),
            (std::vector{3.0, 2.0}));
  EXPECT_THROW(paired_differences({{1, 1.0}}, {{2, 1.0}}), UsageError);
  EXPECT_THROW(paired_differences({{1, 1.0}}, {{1, 1.0}, {2, 1.0}}), UsageError);
}

TEST(Spread, OfNothingOrOfOneIsUndefined) {
  EXPECT_TRUE(std::isnan(spread_of({}).mean));
  const Spread one = spread_of(std::vector{3.0});
  EXPECT_EQ(one.mean, 3);
  EXPECT_TRUE(std::isnan(one.sd));
  EXPECT_FALSE(prediction_interval(one, 1, 0.99));
}

// Tables of Student's t, the normal and F (as beta: F_{a,b} <= f where a f/(a f + b) <= q).
TEST(Quantiles, AreThoseOfTheTables) {
  EXPECT_NEAR(student_quantile(0.975, 1), 12.7062, 5e-5);
  EXPECT_NEAR(student_quantile(0.975, 4), 2.77645, 5e-6);
  EXPECT_NEAR(student_quantile(0.95, 4), 2.13185, 5e-6);
  EXPECT_NEAR(student_quantile(0.995, 30), 2.74999, 5e-5);
  EXPECT_NEAR(normal_quantile(0.975), 1.959964, 5e-7);
  EXPECT_NEAR(student_above(2.13185, 4), 0.05, 1e-6);
  EXPECT_EQ(student_above(std::numeric_limits<double>::infinity(), 4), 0);
  const double q = beta_quantile(0.95, 3 / 2.0, 10 / 2.0);
  EXPECT_NEAR(q / (1 - q) * 10 / 3, 3.70826, 5e-6);
  EXPECT_THROW(student_quantile(1, 4), UsageError);
  EXPECT_THROW(student_quantile(0.5, 0), UsageError);
  EXPECT_THROW(student_above(kNan, 4), UsageError);
}

TEST(Families, TogetherErrAtTheLevel) {
  EXPECT_EQ(sidak_level(0.05, 1), 0.05);
  EXPECT_NEAR(sidak_level(0.01, 100), 1.00498e-4, 5e-10);
  EXPECT_NEAR(1 - std::pow(1 - sidak_level(0.01, 300), 300), 0.01, 1e-12);
}

// Exact intervals as tabulated, 10 of 20 and the rule of three's exact form.
TEST(Rates, IntervalIsClopperAndPearsons) {
  const Interval half = rate_interval(10, 20, 0.95);
  EXPECT_NEAR(half.low, 0.27196, 5e-6);
  EXPECT_NEAR(half.high, 0.72804, 5e-6);
  const Interval none = rate_interval(0, 5, 0.95);
  EXPECT_EQ(none.low, 0);
  EXPECT_NEAR(none.high, 1 - std::pow(0.025, 0.2), 1e-12);
  const Interval all = rate_interval(5, 5, 0.95);
  EXPECT_EQ(all.high, 1);
  EXPECT_NEAR(all.low, std::pow(0.025, 0.2), 1e-12);
  EXPECT_EQ(rate_interval(0, 0, 0.95).low, 0);
  EXPECT_EQ(rate_interval(0, 0, 0.95).high, 1);
  EXPECT_THROW(rate_interval(3, 2, 0.95), UsageError);
}

TEST(Medians, HaveAnIntervalFromSixValuesOn) {
  EXPECT_EQ(median(std::vector{3.0, 1.0, 2.0}), 2);
  EXPECT_EQ(median(std::vector{4.0, 1.0, 2.0, 3.0}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_TRUE(std::isnan(median(std::vector{1.0, kNan})));
  EXPECT_FALSE(median_interval(std::vector{1.0, 2.0, 3.0, 4.0, 5.0}, 0.95));
  const auto six = median_interval(std::vector{6.0, 2.0, 3.0, 4.0, 5.0, 1.0}, 0.95);
  EXPECT_EQ(six->low, 1);
  EXPECT_EQ(six->high, 6);
  std::vector<double> twenty(20);
  for (int i = 0; i < 20; ++i) twenty[static_cast<size_t>(i)] = i + 1;
  const auto tabulated = median_interval(twenty, 0.95);  // the sign test's table: 6th and 15th
  EXPECT_EQ(tabulated->low, 6);
  EXPECT_EQ(tabulated->high, 15);
}

TEST(Medians, OfTurnsAreNotMovedByAMachineThatSlowsDown) {
  std::vector<double> a, b;
  for (int i = 0; i < 9; ++i) {
    const double slow = i < 4 ? 1 : 3;
    a.push_back(1.3 * slow);
    b.push_back(slow);
  }
  const Median ratio = ratio_of_turns(a, b, 0.95);
  EXPECT_NEAR(ratio.value, 1.3, 1e-12);
  EXPECT_NEAR(ratio.interval->low, 1.3, 1e-12);
  EXPECT_THROW(ratio_of_turns(a, {}, 0.95), UsageError);
}

TEST(Predictions, AreMissedAsOftenAsTheySay) {
  EXPECT_NEAR(prediction_interval(spread_of(std::vector{1.0, 2.0, 3.0}), 1, 0.95)->high,
              2 + 4.302653 * std::sqrt(4.0 / 3), 1e-5);
  int64_t missed = 0;
  constexpr int64_t kTrials = 4000;
  std::mt19937_64 generator(1);
  std::normal_distribution<double> normal;
  const auto draw = [&] { return normal(generator); };
  for (int64_t trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(5);
    std::ranges::generate(values, draw);
    double later = 0;
    for (int k = 0; k < 5; ++k) later += draw() / 5;
    missed += prediction_interval(spread_of(values), 5, 0.9)->contains(later) ? 0 : 1;
  }
  EXPECT_TRUE(rate_interval(missed, kTrials, 0.999).contains(0.1)) << missed;
}

TEST(KnownFaults, O55_BestValuesAndRunningAverages) {
  const auto best = best_of(std::vector{5.0, 4.0, 4.5, 4.6, 3.9, 3.95, 3.93, 3.91}, Better::lower);
  EXPECT_EQ(best->value, 3.9);
  EXPECT_EQ(best->at, 4);
  const auto past_nan = best_of(std::vector{5.0, 4.0, kNan, 4.5, 4.2, 4.1}, Better::lower);
  EXPECT_EQ(past_nan->value, 4);
  EXPECT_EQ(past_nan->at, 1);
  const auto first = best_of(std::vector{kNan, 0.6, 0.7, 0.7}, Better::higher);
  EXPECT_EQ(first->value, 0.7);
  EXPECT_EQ(first->at, 2);
  EXPECT_FALSE(best_of(std::vector{kNan}, Better::lower));

  for (const double value : smoothed(std::vector<double>(3, 2.0), 0.98))
    EXPECT_NEAR(value, 2, 1e-12);
  const auto past = smoothed(std::vector{2.0, kNan, 2.0, 3.0}, 0.5);
  EXPECT_NEAR(past[1], 2, 1e-12);
  EXPECT_NEAR(past[2], 2, 1e-12);
  EXPECT_NEAR(past[3], (0.125 * 2 + 0.25 * 2 + 0.5 * 3) / 0.875, 1e-12);
  EXPECT_TRUE(std::isnan(smoothed(std::vector{kNan, 1.0}, 0.5)[0]));
}

TEST(Jaggedness, IsZeroOnAStraightLine) {
  EXPECT_EQ(jaggedness(std::vector{5.0, 4.0, 3.0, 2.0}), 0);
  EXPECT_NEAR(jaggedness(std::vector{0.0, 1.0, 0.0, 1.0}), 1.1547005, 1e-7);
  EXPECT_TRUE(std::isnan(jaggedness(std::vector{1.0, 2.0})));
}

}  // namespace
}  // namespace lockstep::apps::statistics
