// B4a: "8 cards with AMP: the loss would not fall, since the FP16 all-reduce cut small gradients to
// 0; FP32 all-reduce fixed it". Computing is fp32 here, so that nothing but the wire differs, and
// gradients are made smaller and smaller around the wire: at 2^0 that is the claim, beyond it the
// mechanism.
#include "apps/compare/claims/fp16_wire.h"

#include "apps/compare/claims/models.h"
#include "apps/compare/claims/tuning.h"
#include "apps/compare/verdict_rules.h"
#include "apps/compare/verdict_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

namespace lockstep::apps {
namespace {

constexpr int64_t kRanks = 8;
constexpr double kMargin = 0.02;  // nats
constexpr double kRates[] = {1e-3, 2e-3, 4e-3, 8e-3};
constexpr int kShifts[] = {0, 4, 8, 12, 16};  // as far as --scale goes

struct Preset {
  const char *name, *precision, *wire, *scale;
};
constexpr Preset kPresets[] = {
    {"fp16 compute, fp16 wire, no loss scale", "amp-fp16", "fp16", "none"},
    {"fp16 compute, fp16 wire, dynamic loss scale", "amp-fp16", "fp16", "dynamic"},
    {"fp16 compute, fp32 wire, no loss scale", "amp-fp16", "fp32", "none"}};

RunRequest base(const Setting& setting) {
  return small_gpt(setting, 0).with("--ranks", kRanks).with("--batch", 2);
}

// A fixed loss scale below one makes gradients smaller until the verdict undoes it, behind the
// wire; of fp32 numbers a power of two costs nothing.
RunRequest dosed(const RunRequest& request, int shift) {
  return request.with("--wire", "fp16")
      .with("--scale", std::ldexp(1.0, -shift))
      .with("--probe", "gradients")
      .with("--probe-every", 20);
}

RunRequest preset(const RunRequest& request, const Preset& p) {
  return request.with("--precision", p.precision).with("--wire", p.wire).with("--scale", p.scale);
}

Needs ask(const Setting& setting) { return {tuning_runs(base(setting), kRates, setting), {}}; }

RunRequest tuned(const Setting& setting, Results& results) {
  return base(setting).with("--lr", best_rate(base(setting), kRates, setting, results));
}

Needs ask_again(const Setting& setting, Results& results) {
  Needs needs;
  const auto add = [&](const RunRequest& arm) {
    std::ranges::copy(reporting_runs(arm, setting), std::back_inserter(needs.runs));
  };
  const RunRequest fp32 = tuned(setting, results);
  add(fp32);
  for (const int shift : kShifts) add(dosed(fp32, shift));
  for (const Preset& p : kPresets) add(preset(fp32, p));
  return needs;
}

Outcome judge(const Setting& setting, Results& results) {
  const RunRequest fp32 = tuned(setting, results);
  const statistics::BySeed baseline = losses_of(fp32, setting, results);
  const auto against = [&](const RunRequest& arm) {
    return statistics::test_margin(
        statistics::paired_differences(losses_of(arm, setting, results), baseline), kMargin);
  };
  Outcome outcome;
  std::vector<Dose> doses;
  Series gap{.name = "loss over an fp32 wire's"};
  Chart zeros{.title = "Gradients that the cast to fp16 makes zero",
              .kind = ChartKind::bar,
              .y = {"share of elements", "%"},
              .series = {{.name = "zeros"}}};
  for (const int shift : kShifts) {
    const RunRequest arm = dosed(fp32, shift);
    doses.push_back({shift, zeros_of(arm, setting, results), against(arm)});
    const Dose& dose = doses.back();
    outcome.figures.push_back(difference_figure(
        fmt::format("loss of an fp16 wire over an fp32 one's, gradients times 2^-{}", shift),
        "nats", dose.loss));
    outcome.figures.push_back(
        {fmt::format("zeros on the wire, gradients times 2^-{}", shift), "%", 100 * dose.zeros});
    gap.x.push_back(100 * dose.zeros);
    gap.y.push_back(dose.loss.spread.mean);
    gap.low.push_back(dose.loss.interval ? dose.loss.interval->low : NAN);
    gap.high.push_back(dose.loss.interval ? dose.loss.interval->high : NAN);
    gap.labels.push_back(fmt::format("2^-{}", shift));
    zeros.categories.push_back(fmt::format("2^-{}", shift));
    zeros.series[0].y.push_back(100 * dose.zeros);
  }
  for (const Preset& p : kPresets)
    outcome.figures.push_back(difference_figure(fmt::format("loss of {}, over fp32's", p.name),
                                                "nats", against(preset(fp32, p))));
  outcome.verdict = judge_fp16_wire(doses);
  outcome.charts = {{.title = "How many zeros it takes to hurt",
                     .kind = ChartKind::scatter,
                     .x = {"gradients that are zero on the wire", "%"},
                     .y = {"validation loss over an fp32 wire's", "nats"},
                     .series = {gap}},
                    zeros};
  outcome.takeaway =
      "Watch the share of zeros, but do not fear it: gradients of this size lose next to nothing "
      "to an fp16 wire. If a loss will not fall there, look first for gradients that were unscaled "
      "before the wire, or for a scale that was lost.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "B4a",
     .source = "document B, mixed precision",
     .statement =
         "On 8 cards an FP16 all-reduce cuts small gradients to zero and the loss does not "
         "fall; an FP32 all-reduce mends it.",
     .done =
         "A small GPT on 8 ranks, computing in fp32, all-reduces in fp32 and in fp16, the latter "
         "with gradients 2^-s times as large around the wire, s = 0 to 16; zeros are counted "
         "behind the cast. Beside it fp16 computing with both wires, with and without a loss "
         "scale. All arms share the learning rate that suits the fp32 wire, so that nothing "
         "else differs. Unscaling before the wire is not among the arms.",
     .rule = "Direction, at s = 0: reproduced where the loss with an fp16 wire is more than 0.02 "
             "nats above that with an fp32 one (paired test), not where they are equivalent. Size, "
             "that is the mechanism: reproduced where some s is beyond the margin and each such s "
             "makes more zeros than any s that is equivalent, in part where zeros do not tell them "
             "apart, not where none is beyond it.",
     .needed = {.steps = 300, .seeds = 5},
     .quick = {.steps = 60, .seeds = 2},
     .full = {.steps = 2000, .seeds = 5},
     .ask = ask,
     .ask_again = ask_again,
     .judge = judge}};

}  // namespace

double zeros_of(const RunRequest& arm, const Setting& setting, Results& results) {
  double sum = 0, count = 0;
  for (const int64_t seed : setting.seeds)
    for (const double zeros :
         results.result(arm.with("--seed", seed)).series("probe.overall.wire.zeros").value) {
      sum += zeros;
      ++count;
    }
  return sum / count;
}

Judgement judge_zeros(const std::vector<Dose>& doses) {
  using statistics::Shown;
  double least_harmful = INFINITY, most_harmless = -INFINITY;
  bool decided = false;
  for (const Dose& dose : doses) {
    const bool gone = !std::isfinite(dose.loss.spread.mean) && dose.loss.spread.n > 1;
    if (dose.loss.shown == Shown::above || gone)
      least_harmful = std::min(least_harmful, dose.zeros);
    if (dose.loss.shown == Shown::equivalent) most_harmless = std::max(most_harmless, dose.zeros);
    decided = decided || dose.loss.shown != Shown::undefined || gone;
  }
  const bool harm = least_harmful < INFINITY;
  // That the last dose does no harm has to be shown before it is said.
  const bool none = !harm && doses.back().loss.shown == Shown::equivalent;
  return {!decided || (!harm && !none)    ? Finding::inconclusive
          : none                          ? Finding::not_reproduced
          : least_harmful > most_harmless ? Finding::reproduced
                                          : Finding::in_part,
          Provenance::measured,
          harm ? fmt::format("beyond the margin from {} % zeros on; equivalent up to {} %",
                             short_number(100 * least_harmful),
                             most_harmless < 0 ? "no" : short_number(100 * most_harmless))
               : "no dose is beyond the margin"};
}

Verdict judge_fp16_wire(const std::vector<Dose>& doses) {
  const Dose& claim = doses.front();
  return {larger(difference_figure("loss of an fp16 wire over an fp32 one's", "nats", claim.loss),
                 claim.loss),
          judge_zeros(doses)};
}

}  // namespace lockstep::apps
