#include "apps/compare/statistics/paired.h"

#include "apps/compare/statistics/quantiles.h"
#include "core/check.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::apps::statistics {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool has_spread(const Spread& s) { return s.n >= 2 && std::isfinite(s.standard_error); }

Interval around(const Spread& s, double half_width) {
  return {s.mean - half_width, s.mean + half_width};
}

// Student's t at which `confidence` lies within ±t.
double two_sided(const Spread& s, double confidence) {
  return student_quantile(0.5 + confidence / 2, static_cast<double>(s.n - 1));
}

}  // namespace

std::vector<double> paired_differences(const BySeed& arm, const BySeed& baseline) {
  std::vector<double> differences;
  for (const auto& [seed, value] : arm) {
    const auto other = baseline.find(seed);
    check(other != baseline.end(), "[compare.paired] seed {} has no baseline", seed);
    differences.push_back(value - other->second);
  }
  check(arm.size() == baseline.size(),
        "[compare.paired] expected the same seeds in both arms, got {} and {}", arm.size(),
        baseline.size());
  return differences;
}

Spread spread_of(std::span<const double> values) {
  Spread s{
      .n = static_cast<int64_t>(values.size()), .mean = kNan, .sd = kNan, .standard_error = kNan};
  if (values.empty() || !std::ranges::all_of(values, [](double v) { return std::isfinite(v); }))
    return s;
  if (std::ranges::all_of(values, [&](double v) { return v == values[0]; })) {
    s.mean = values[0];  // not their sum over n, which rounds
    if (s.n >= 2) {
      s.sd = s.standard_error = 0;
      s.no_variance = true;
    }
    return s;
  }
  const auto n = static_cast<double>(s.n);
  s.mean = 0;
  for (const double v : values) s.mean += v / n;
  double squares = 0;
  for (const double v : values) squares += (v - s.mean) * (v - s.mean);
  s.sd = std::sqrt(squares / (n - 1));
  s.standard_error = s.sd / std::sqrt(n);
  return s;
}

std::optional<Interval> mean_interval(const Spread& s, double confidence) {
  if (!has_spread(s)) return std::nullopt;
  return around(s, two_sided(s, confidence) * s.standard_error);
}

std::optional<Interval> prediction_interval(const Spread& s, int64_t later, double confidence) {
  check(later >= 1, "[compare.prediction] expected one later value at least, got {}", later);
  if (!has_spread(s)) return std::nullopt;
  const double share = 1 / static_cast<double>(s.n) + 1 / static_cast<double>(later);
  return around(s, two_sided(s, confidence) * s.sd * std::sqrt(share));
}

PairedTest test_margin(std::span<const double> differences, double margin, double level) {
  check(margin > 0 && std::isfinite(margin),
        "[compare.paired] a margin; expected a positive number, got {}", margin);
  check(level > 0 && level < 0.5, "[compare.paired] a level; expected 0 < level < 0.5, got {}",
        level);
  PairedTest test{.spread = spread_of(differences), .margin = margin, .level = level};
  const Spread& s = test.spread;
  if (!has_spread(s)) return test;
  test.interval = mean_interval(s, 1 - 2 * level);
  // P(such a mean or one further up) if the true one lay at `edge`; without variance it is 0 or 1.
  const auto p_beyond = [&](double distance) {
    if (s.no_variance) return distance > 0 ? 0.0 : 1.0;
    return student_above(distance / s.standard_error, static_cast<double>(s.n - 1));
  };
  test.p_above = p_beyond(s.mean - margin);
  test.p_below = p_beyond(-margin - s.mean);
  test.p_equivalent = std::max(p_beyond(s.mean + margin), p_beyond(margin - s.mean));
  test.shown = test.p_equivalent < level ? Shown::equivalent
               : test.p_above < level    ? Shown::above
               : test.p_below < level    ? Shown::below
                                         : Shown::nothing;
  return test;
}

}  // namespace lockstep::apps::statistics
