#include "apps/compare/verdict_rules.h"

#include "apps/compare/verdict_text.h"
#include "core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace lockstep::apps {
namespace {

using statistics::PairedTest, statistics::Shown;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kConfidence = 0.95;

std::optional<Interval> known(const Figure& figure) {
  if (!std::isfinite(figure.value)) return std::nullopt;
  if (figure.interval) return figure.interval;
  if (figure.samples > 0) return std::nullopt;
  return Interval{figure.value, figure.value};
}

Judgement judged(Finding finding, Provenance provenance, const Figure& figure,
                 std::string_view beside) {
  return {finding, provenance, fmt::format("{}: {}", text_of(figure), beside)};
}

Judgement undecided(Provenance provenance, const Figure& figure) {
  return judged(
      Finding::inconclusive, provenance, figure,
      std::isfinite(figure.value) ? "too few samples for an interval" : "not a finite number");
}

std::string range(Interval i) {
  if (i.low == -kInfinity) return fmt::format("at most {}", short_number(i.high));
  if (i.high == kInfinity) return fmt::format("at least {}", short_number(i.low));
  return fmt::format("{} to {}", short_number(i.low), short_number(i.high));
}

bool inside(Interval i, Interval of) { return of.low <= i.low && i.high <= of.high; }
bool outside(Interval i, Interval of) { return i.high < of.low || i.low > of.high; }

}  // namespace

Judgement within(const Figure& figure, Interval claimed, Interval near, Provenance provenance) {
  check(inside(claimed, near), "[compare.rule] {}: the claimed range is not within the near one",
        figure.name);
  const std::optional<Interval> is = known(figure);
  if (!is) return undecided(provenance, figure);
  if (inside(*is, claimed))
    return judged(Finding::reproduced, provenance, figure,
                  fmt::format("within {}", range(claimed)));
  if (inside(*is, near) && !(near.low == claimed.low && near.high == claimed.high))
    return judged(Finding::in_part, provenance, figure,
                  fmt::format("not surely within {}, but within {}", range(claimed), range(near)));
  if (outside(*is, near))
    return judged(Finding::not_reproduced, provenance, figure,
                  fmt::format("outside {}", range(near)));
  return judged(Finding::inconclusive, provenance, figure,
                fmt::format("reaches over an end of {}", range(near)));
}

Judgement at_least(const Figure& figure, double claimed, double refuted, Provenance provenance) {
  return within(figure, {claimed, kInfinity}, {refuted, kInfinity}, provenance);
}

Judgement at_most(const Figure& figure, double claimed, double refuted, Provenance provenance) {
  return within(figure, {-kInfinity, claimed}, {-kInfinity, refuted}, provenance);
}

namespace {

Judgement of_test(const Figure& figure, const PairedTest& test, Finding equivalent, Finding above,
                  Finding below) {
  const auto say = [&](Finding finding, std::string_view what, double p) {
    return judged(
        finding, Provenance::measured, figure,
        fmt::format("{} (margin {}, p = {}{})", what, short_number(test.margin), short_number(p),
                    test.spread.no_variance ? ", no variance over the seeds" : ""));
  };
  switch (test.shown) {
    case Shown::equivalent:
      return say(equivalent, "equivalent", test.p_equivalent);
    case Shown::above:
      return say(above, "above the margin", test.p_above);
    case Shown::below:
      return say(below, "below the margin", test.p_below);
    case Shown::nothing:
      return say(Finding::inconclusive, "neither equivalent nor beyond the margin",
                 std::min({test.p_equivalent, test.p_above, test.p_below}));
    case Shown::undefined:
      break;
  }
  return judged(Finding::inconclusive, Provenance::measured, figure,
                test.spread.n < 2 ? "fewer than two pairs of runs" : "a run has no finite result");
}

}  // namespace

Judgement same(const Figure& figure, const PairedTest& test) {
  return of_test(figure, test, Finding::reproduced, Finding::not_reproduced,
                 Finding::not_reproduced);
}

Judgement larger(const Figure& figure, const PairedTest& test) {
  return of_test(figure, test, Finding::not_reproduced, Finding::reproduced,
                 Finding::not_reproduced);
}

Judgement all_of(std::span<const Judgement> parts) {
  check(!parts.empty(), "[compare.rule] a judgement of no parts");
  Judgement all = parts[0];
  const auto any = [&](Finding finding) {
    return std::ranges::any_of(parts, [&](const Judgement& p) { return p.finding == finding; });
  };
  for (const Judgement& part : parts.subspan(1)) {
    if (part.finding != all.finding) all.finding = Finding::in_part;
    if (part.provenance != all.provenance) all.provenance = Provenance::modelled;
    all.reason += "; " + part.reason;
  }
  if (any(Finding::inconclusive)) all.finding = Finding::inconclusive;
  if (any(Finding::not_testable)) all.finding = Finding::not_testable;
  return all;
}

Judgement preview(const Judgement& judgement, const std::string& why) {
  return {Finding::inconclusive, judgement.provenance, why + "; so far " + judgement.reason};
}

Figure difference_figure(std::string name, std::string unit, const PairedTest& test) {
  Figure figure{std::move(name), std::move(unit), test.spread.mean, test.interval, test.spread.n};
  if (std::isfinite(test.spread.sd)) figure.spread = test.spread.sd;
  return figure;
}

Figure mean_figure(std::string name, std::string unit, std::span<const double> values) {
  const statistics::Spread spread = statistics::spread_of(values);
  Figure figure{std::move(name), std::move(unit), spread.mean,
                statistics::mean_interval(spread, kConfidence), spread.n};
  if (std::isfinite(spread.sd)) figure.spread = spread.sd;
  return figure;
}

}  // namespace lockstep::apps
