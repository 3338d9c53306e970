#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

/// What is read off a curve of metrics. Values that are not finite count as not measured: they are
/// neither the best nor enter an average.
namespace lockstep::apps::statistics {

enum class Better { lower, higher };

struct Best {
  double value = 0;
  int64_t at = 0;  ///< index of the first of equals
};
std::optional<Best> best_of(std::span<const double> values, Better better);

/// Exponential averages with weight `keep` (0 <= keep < 1) on the past, corrected for its beginning
/// (Kingma and Ba 2015, section 3), so that a constant stays itself; at a value that is not finite
/// the average so far, NaN before the first.
std::vector<double> smoothed(std::span<const double> values, double keep);

/// Standard deviation of the first differences, mean removed: how jagged it is. NaN for fewer than
/// three values or with one among them that is not finite.
double jaggedness(std::span<const double> values);

}  // namespace lockstep::apps::statistics
