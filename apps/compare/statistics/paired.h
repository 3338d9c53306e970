#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "apps/compare/verdict.h"

/// Differences taken seed by seed, and what they show. Arms of a comparison share seed,
/// initialisation and data, so their differences spread far less than their values do.
namespace lockstep::apps::statistics {

/// One number a run: runs are what is counted, not the points of their curves.
using BySeed = std::map<int64_t, double>;

/// arm - baseline in the order of seeds. UsageError where they do not have the same seeds.
std::vector<double> paired_differences(const BySeed& arm, const BySeed& baseline);

/// What a sample says of the mean it was drawn around. Undefined values are NaN: all with a number
/// that is not finite among them, the spread with fewer than two.
struct Spread {
  int64_t n = 0;
  double mean = 0;
  double sd = 0;              ///< with n - 1
  double standard_error = 0;  ///< sd/√n
  /// They are all the same number: the spread is not zero but unknown.
  bool no_variance = false;
};
Spread spread_of(std::span<const double> values);

/// Student's interval of the mean; none where the spread is not defined.
std::optional<Interval> mean_interval(const Spread& spread, double confidence);
/// Where the mean of `later` more values will lie; none where the spread is not defined.
std::optional<Interval> prediction_interval(const Spread& spread, int64_t later, double confidence);

/// What differences show about a margin m > 0.
enum class Shown {
  equivalent,  ///< the mean lies in (-m, m)
  above,       ///< it lies above m
  below,       ///< it lies below -m
  nothing,     ///< none of these at this level
  undefined    ///< fewer than two pairs, or a run without a finite result
};

/// Two one-sided t tests (Schuirmann 1987) for equivalence, and one each for a difference beyond
/// the margin. With `no_variance` there is no t: the common value itself decides.
struct PairedTest {
  Spread spread;
  double margin = 0, level = 0;
  Shown shown = Shown::undefined;
  /// Of 1 - 2·level: inside ±margin exactly where `equivalent`, beyond it where `above`, `below`.
  std::optional<Interval> interval;
  double p_equivalent = 1;  ///< the larger of the two tests'
  double p_above = 1, p_below = 1;
};
PairedTest test_margin(std::span<const double> differences, double margin, double level = 0.05);

}  // namespace lockstep::apps::statistics
