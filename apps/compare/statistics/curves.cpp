#include "apps/compare/statistics/curves.h"

#include "apps/compare/statistics/paired.h"
#include "core/check.h"

#include <cmath>
#include <limits>

namespace lockstep::apps::statistics {

std::optional<Best> best_of(std::span<const double> values, Better better) {
  std::optional<Best> best;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    if (!best || (better == Better::lower ? values[i] < best->value : values[i] > best->value))
      best = Best{values[i], static_cast<int64_t>(i)};
  }
  return best;
}

std::vector<double> smoothed(std::span<const double> values, double keep) {
  check(keep >= 0 && keep < 1, "[compare.smoothed] a weight; expected 0 <= keep < 1, got {}", keep);
  std::vector<double> averages;
  double sum = 0, weight = 0;
  for (const double value : values) {
    if (std::isfinite(value)) {
      sum = keep * sum + (1 - keep) * value;
      weight = keep * weight + (1 - keep);
    }
    averages.push_back(weight > 0 ? sum / weight : std::numeric_limits<double>::quiet_NaN());
  }
  return averages;
}

double jaggedness(std::span<const double> values) {
  std::vector<double> differences;
  for (size_t i = 1; i < values.size(); ++i) differences.push_back(values[i] - values[i - 1]);
  return spread_of(differences).sd;
}

}  // namespace lockstep::apps::statistics
