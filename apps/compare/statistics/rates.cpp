#include "apps/compare/statistics/rates.h"

#include "apps/compare/statistics/quantiles.h"
#include "core/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace lockstep::apps::statistics {
namespace {

// Sorted; empty where one is NaN.
std::vector<double> sorted(std::span<const double> values) {
  std::vector<double> copy(values.begin(), values.end());
  if (std::ranges::any_of(copy, [](double v) { return std::isnan(v); })) return {};
  std::ranges::sort(copy);
  return copy;
}

}  // namespace

Interval rate_interval(int64_t events, int64_t trials, double confidence) {
  check(events >= 0 && events <= trials, "[compare.rate] {} of {}; expected 0 <= events <= trials",
        events, trials);
  const auto k = static_cast<double>(events), n = static_cast<double>(trials);
  const double tail = (1 - confidence) / 2;
  return {events == 0 ? 0 : beta_quantile(tail, k, n - k + 1),
          events == trials ? 1 : beta_quantile(1 - tail, k + 1, n - k)};
}

double median(std::span<const double> values) {
  const std::vector<double> v = sorted(values);
  if (v.empty()) return std::numeric_limits<double>::quiet_NaN();
  const size_t middle = v.size() / 2;
  return v.size() % 2 == 1 ? v[middle] : (v[middle - 1] + v[middle]) / 2;
}

std::optional<Interval> median_interval(std::span<const double> values, double confidence) {
  const std::vector<double> v = sorted(values);
  const auto n = static_cast<int64_t>(v.size());
  // [v[k], v[n-1-k]] misses the median where at most k values lie on one side of it.
  int64_t k = -1;
  while (2 * (k + 1) < n - 1 && 1 - 2 * fair_binomial_below(k + 1, n) >= confidence) ++k;
  if (k < 0) return std::nullopt;
  return Interval{v[static_cast<size_t>(k)], v[static_cast<size_t>(n - 1 - k)]};
}

Median ratio_of_turns(std::span<const double> a, std::span<const double> b, double confidence) {
  check(a.size() == b.size() && !a.empty(),
        "[compare.turns] expected as many of one as of the other, got {} and {}", a.size(),
        b.size());
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return {median(ratios), median_interval(ratios, confidence)};
}

}  // namespace lockstep::apps::statistics
