#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "apps/compare/verdict.h"

/// Intervals that assume nothing about a distribution: of rates and of medians.
namespace lockstep::apps::statistics {

/// `events` of `trials` happened: the exact interval of Clopper and Pearson (1934), which covers at
/// least `confidence`. Neither end is beyond 0 or 1; no trials: all of [0, 1].
Interval rate_interval(int64_t events, int64_t trials, double confidence);

/// The middle value; of an even number the mean of the two. NaN where there is none or one is NaN.
double median(std::span<const double> values);

/// Between two of the values, symmetric in their order, so that it covers the median with at least
/// `confidence` whatever they come from. None where even the whole range does not: below six
/// values at 0.95. None with a NaN among them.
std::optional<Interval> median_interval(std::span<const double> values, double confidence);

struct Median {
  double value = 0;
  std::optional<Interval> interval;
};
/// How many times as long `a` takes as `b`, measured in turns: a[i] right before or after b[i], so
/// that what slows the machine slows both. The median of a[i]/b[i].
Median ratio_of_turns(std::span<const double> a, std::span<const double> b, double confidence);

}  // namespace lockstep::apps::statistics
