#include "apps/compare/statistics/quantiles.h"
#include "apps/compare/statistics/paired.h"
#include "apps/compare/verdict_file.h"
#include "apps/compare/verdict_text.h"
#include "core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::apps {
namespace {

constexpr double kFalseAlarms = 0.01;     // of all figures together
constexpr double kComputedDigits = 1e-6;  // relative; the same bits on the same instruction set

template <class List>
const auto* find(const List& list, const std::string& key, std::string List::value_type::*name) {
  const auto found = std::ranges::find(list, key, name);
  return found == list.end() ? nullptr : &*found;
}

bool predictable(const Figure& f) {
  return std::isfinite(f.value) &&
         (f.samples == 0 || (f.samples >= 2 && f.spread && std::isfinite(*f.spread)));
}

// Where a repetition with `later` samples has to lie.
Interval predicted(const Figure& f, int64_t later, double level) {
  const double rounding = kComputedDigits * std::max(std::abs(f.value), 1e-6);
  if (f.samples == 0) return {f.value - rounding, f.value + rounding};
  const statistics::Spread spread{
      .n = f.samples,
      .mean = f.value,
      .sd = *f.spread,
      .standard_error = *f.spread / std::sqrt(static_cast<double>(f.samples))};
  const Interval i =
      *statistics::prediction_interval(spread, std::max<int64_t>(later, 1), 1 - level);
  return {i.low - rounding, i.high + rounding};
}

void compare(const std::string& what, const Judgement& before, const Judgement& now,
             std::vector<std::string>& found) {
  if (before.finding != now.finding)
    found.push_back(fmt::format("{} was {}, is {}: {}", what, name_of(before.finding),
                                name_of(now.finding), now.reason));
}

}  // namespace

std::vector<std::string> regressions(const VerdictFile& before, const VerdictFile& now) {
  check(before.isa == now.isa,
        "--check: verdicts made with {}, these with {}; LOCKSTEP_ISA={} makes them comparable",
        before.isa, now.isa, before.isa);
  int64_t family = 0;
  for (const ClaimRecord& claim : before.claims)
    if (find(now.claims, claim.id, &ClaimRecord::id))
      family += std::ranges::count_if(claim.figures, predictable);
  const double level = statistics::sidak_level(kFalseAlarms, std::max<int64_t>(family, 1));

  std::vector<std::string> found;
  for (const ClaimRecord& was : before.claims) {
    const ClaimRecord* is = find(now.claims, was.id, &ClaimRecord::id);
    if (is == nullptr) continue;
    compare(was.id + ": direction", was.verdict.direction, is->verdict.direction, found);
    if (was.verdict.size.has_value() != is->verdict.size.has_value())
      found.push_back(was.id + ": only one of them has a size");
    else if (was.verdict.size)
      compare(was.id + ": size", *was.verdict.size, *is->verdict.size, found);
    for (const Figure& figure : was.figures) {
      if (!predictable(figure)) continue;
      const Figure* again = find(is->figures, figure.name, &Figure::name);
      if (again == nullptr) {
        found.push_back(fmt::format("{}: '{}' is not there any more", was.id, figure.name));
        continue;
      }
      const Interval expected = predicted(figure, again->samples, level);
      if (!expected.contains(again->value))
        found.push_back(fmt::format("{}: {} was {}, is {}; expected {} to {}", was.id, figure.name,
                                    short_number(figure.value), short_number(again->value),
                                    short_number(expected.low), short_number(expected.high)));
    }
  }
  return found;
}

}  // namespace lockstep::apps
