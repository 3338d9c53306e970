// B4b: "loss scaling prevents underflow; watch the share of zeros". Everything is fp16, backward
// included, since that is where small gradients are lost first; a fixed scale below one stands for
// gradients that are smaller than this net's.
#include "apps/compare/claims/loss_scale.h"

#include "apps/compare/claims/models.h"
#include "apps/compare/claims/tuning.h"
#include "apps/compare/statistics/rates.h"
#include "apps/compare/verdict_rules.h"
#include "apps/compare/verdict_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

namespace lockstep::apps {
namespace {

constexpr double kMargin = 0.02;  // nats
constexpr double kRates[] = {2e-3, 4e-3, 8e-3, 1.6e-2};
constexpr int kShifts[] = {-16, -8, 0, 4, 8, 12};  // scales 2^-shift
constexpr double kUnderflows = 0.001, kPrevented = 0.1, kRemains = 0.5;

// Starts far too low and far too high; five good steps double the scale.
struct Path {
  const char *name, *scale;
};
constexpr Path kPaths[] = {{"dynamic, from 2^16", "dynamic"},
                           {"dynamic, from 2^-12", "dynamic:start=0.000244140625,interval=5"},
                           {"dynamic, from 2^24", "dynamic:start=16777216,interval=5"}};

RunRequest fp32(const Setting& setting) {
  return small_gpt(setting, 0)
      .with("--layers", 1)
      .with("--width", 32)
      .with("--context", 16)
      .with("--ranks", 2)
      .with("--batch", 32)
      .with("--accumulate", 4);
}
RunRequest tuned(const Setting& setting, Results& results) {
  return fp32(setting).with("--lr", best_rate(fp32(setting), kRates, setting, results));
}
RunRequest probed(const RunRequest& request) {
  return request.with("--probe", "gradients").with("--probe-every", 20);
}
RunRequest half(const RunRequest& request, const std::string& scale) {
  return probed(request).with("--precision", "half-fp16").with("--scale", scale);
}
std::string fixed(int shift) {
  return shift == 0 ? "none" : fmt::format("{}", std::ldexp(1.0, -shift));
}

Needs ask(const Setting& setting) { return {tuning_runs(fp32(setting), kRates, setting), {}}; }

Needs ask_again(const Setting& setting, Results& results) {
  Needs needs;
  const auto add = [&](const RunRequest& arm) {
    std::ranges::copy(reporting_runs(arm, setting), std::back_inserter(needs.runs));
  };
  const RunRequest base = tuned(setting, results);
  add(probed(base));
  for (const int shift : kShifts) add(half(base, fixed(shift)));
  for (const Path& path : kPaths) add(half(base, path.scale));
  return needs;
}

// Of the probes of a run; NaN where it has none.
double mean_of(const RunResult& run, const std::string& path) {
  const Points points = run.series(path);
  double sum = 0;
  for (const double value : points.value) sum += value;
  return sum / static_cast<double>(points.value.size());
}

// Zeros on the wire beyond those that gradients have in fp32, such as of bytes that never occur.
double underflow_of(const RunRequest& arm, const RunRequest& exact, int64_t seed,
                    Results& results) {
  const double zeros =
      mean_of(results.result(arm.with("--seed", seed)), "probe.overall.wire.zeros");
  return std::max(
      zeros - mean_of(results.result(exact.with("--seed", seed)), "probe.overall.wire.zeros"), 0.0);
}

void add_path(Outcome& outcome, Chart& chart, const Path& path, const RunRequest& arm,
              const Setting& setting, Results& results) {
  int64_t skipped = 0, steps = 0;
  double settled = 0;
  for (const int64_t seed : setting.seeds) {
    const RunResult& run = results.result(arm.with("--seed", seed));
    const Points scale = run.series("scale");
    for (const auto& step : run.metrics) skipped += step.value("skipped", false) ? 1 : 0;
    steps += static_cast<int64_t>(run.metrics.size());
    settled += scale.value.empty() ? NAN : std::log2(scale.value.back());
    if (seed == setting.seeds[0])
      chart.series.push_back({.name = path.name, .x = scale.step, .y = scale.value});
  }
  const Interval rate = statistics::rate_interval(skipped, steps, 0.95);
  outcome.figures.push_back({fmt::format("skipped steps, {}", path.name), "%",
                             100 * static_cast<double>(skipped) / static_cast<double>(steps),
                             Interval{100 * rate.low, 100 * rate.high}, steps});
  outcome.figures.push_back({fmt::format("last scale, log2, {}", path.name), "",
                             settled / static_cast<double>(setting.seeds.size())});
}

Outcome judge(const Setting& setting, Results& results) {
  const RunRequest base = tuned(setting, results), exact = probed(base);
  const statistics::BySeed baseline = losses_of(exact, setting, results);
  Outcome outcome;
  const auto look = [&](const std::string& name, const RunRequest& arm) {
    double zeros = 0;
    for (const int64_t seed : setting.seeds)
      zeros += underflow_of(arm, exact, seed, results) / static_cast<double>(setting.seeds.size());
    const auto loss = statistics::test_margin(
        statistics::paired_differences(losses_of(arm, setting, results), baseline), kMargin);
    outcome.figures.push_back({fmt::format("underflow, {}", name), "%", 100 * zeros});
    outcome.figures.push_back(
        difference_figure(fmt::format("loss, {}, over fp32's", name), "nats", loss));
    return Dose{0, zeros, loss};
  };
  std::vector<Dose> doses;
  Chart bars{.title = "Gradients that underflow",
             .kind = ChartKind::bar,
             .x = {"loss scale"},
             .y = {"share of elements", "%"},
             .series = {{.name = "zero in fp16, not in fp32"}}};
  for (const int shift : kShifts) {
    const std::string name = shift == 0 ? "no scale" : fmt::format("scale 2^{}", -shift);
    doses.push_back(look(name, half(base, fixed(shift))));
    doses.back().shift = shift;
    bars.categories.push_back(name);
    bars.series[0].y.push_back(100 * doses.back().zeros);
  }
  Chart scales{.title = "The dynamic scaler's path",
               .kind = ChartKind::line,
               .x = {"steps"},
               .y = {"loss scale", "", Scale::log},
               .note =
                   "Of the first seed. Starts that are far off, with a scale that doubles "
                   "after 5 good steps instead of 2000, show how it finds its way."};
  for (const Path& path : kPaths) {
    const Dose dose = look(path.name, half(base, path.scale));
    bars.categories.emplace_back(path.name);
    bars.series[0].y.push_back(100 * dose.zeros);
    add_path(outcome, scales, path, half(base, path.scale), setting, results);
  }
  std::vector<Underflow> seeds;
  for (const int64_t seed : setting.seeds)
    seeds.push_back({underflow_of(half(base, "none"), exact, seed, results),
                     underflow_of(half(base, "dynamic"), exact, seed, results)});
  outcome.verdict = judge_loss_scale(seeds, doses);
  outcome.charts = {bars, scales};
  outcome.takeaway =
      "Scale the loss wherever backward runs in fp16: it costs nothing and keeps gradients out of "
      "the zeros. The share of zeros is an alarm for gradients that are far too small, not a "
      "measure of damage: a few per cent of zeros need not show in the loss. A scaler that starts "
      "too high finds its way by skipping steps, one that starts too low by doubling.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "B4b",
     .source = "document B, mixed precision",
     .statement = "Loss scaling prevents the underflow of small gradients; the share of zeros is "
                  "what to watch.",
     .done = "A small GPT on 2 ranks with parameters, gradients and wire in fp16, 4096 tokens a "
             "step, at fixed loss scales of 2^16 down to 2^-12, without one, and with the dynamic "
             "one started right, too low and too high. Gradients on the wire that are zero are "
             "counted every 20 steps, less those that are zero in fp32, too; all at the learning "
             "rate that suits fp32.",
     .rule = "Direction, that it prevents underflow: where without a scale at least 0.1 % of "
             "gradients underflow on every seed, reproduced where the dynamic scale leaves at most "
             "a tenth of that on every seed, not where it leaves more than half on every seed, "
             "else in part. Size, that zeros tell: reproduced where some fixed scale ends more "
             "than 0.02 nats above fp32 (paired test) and each such makes more zeros than any that "
             "is equivalent, in part where zeros do not tell them apart, not where none is beyond "
             "it.",
     .needed = {.steps = 200, .seeds = 3},
     .quick = {.steps = 60, .seeds = 2},
     .full = {.steps = 2000, .seeds = 5},
     .ask = ask,
     .ask_again = ask_again,
     .judge = judge}};

}  // namespace

Verdict judge_loss_scale(const std::vector<Underflow>& seeds, const std::vector<Dose>& doses) {
  double least = INFINITY, most_left = 0, least_left = INFINITY;
  bool known = !seeds.empty();
  for (const Underflow& seed : seeds) {
    known = known && std::isfinite(seed.unscaled) && std::isfinite(seed.scaled);
    const double left = seed.scaled / seed.unscaled;
    least = std::min(least, seed.unscaled);
    most_left = std::max(most_left, left);
    least_left = std::min(least_left, left);
  }
  const bool some = known && least >= kUnderflows;
  return {{!some                     ? Finding::inconclusive
           : most_left <= kPrevented ? Finding::reproduced
           : least_left > kRemains   ? Finding::not_reproduced
                                     : Finding::in_part,
           Provenance::measured,
           !known  ? "a run has no finite result"
           : !some ? fmt::format("without a scale only {} % underflow: nothing to prevent",
                                 short_number(100 * least))
                   : fmt::format("without a scale at least {} % underflow, of which the dynamic "
                                 "one leaves {} to {} %",
                                 short_number(100 * least), short_number(100 * least_left),
                                 short_number(100 * most_left))},
          judge_zeros(doses)};
}

}  // namespace lockstep::apps
