// B4e: "AMP saves memory and speeds computing up at full accuracy". Memory and losses are real with
// every type; time only with those that the processor has, so that emulated fp16's is not even
// looked at.
#include "apps/compare/claims/amp_gains.h"

#include "apps/compare/claims/models.h"
#include "apps/compare/claims/tuning.h"
#include "apps/compare/statistics/rates.h"
#include "apps/compare/verdict_rules.h"
#include "core/kernels/cpu/dnnl_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

namespace lockstep::apps {
namespace {

constexpr double kMargin = 0.02;     // nats
constexpr int64_t kTurns = 6;        // for an interval of a median at 95 %
constexpr ptrdiff_t kWarmSteps = 5;  // that are not timed
constexpr double kRates[] = {1e-3, 2e-3, 4e-3, 8e-3};
constexpr double kConfidence = 0.95;

struct Preset {
  const char* name;
  enum class Time { told, emulated } time;
};
constexpr Preset kPresets[] = {{"fp32", Preset::Time::told},
                               {"amp-bf16", Preset::Time::told},
                               {"half-bf16", Preset::Time::told},
                               {"amp-fp16", Preset::Time::emulated},
                               {"half-fp16", Preset::Time::emulated}};
constexpr size_t kAmp = 1;

bool timed(const Preset& preset) {
  return preset.time == Preset::Time::told && cpu::has_native_bf16();
}

RunRequest base(const Setting& setting) {
  return small_gpt(setting, 0).with("--width", 128).with("--context", 64).with("--batch", 16);
}
RunRequest arm(const Setting& setting, const Preset& preset, Results& results) {
  RunRequest request = base(setting)
                           .with("--lr", best_rate(base(setting), kRates, setting, results))
                           .with("--precision", preset.name);
  if (timed(preset)) request.company = Company::alone;
  return request;
}

Needs ask(const Setting& setting) { return {tuning_runs(base(setting), kRates, setting), {}}; }

// In turns, so that what slows the machine slows all.
Needs ask_again(const Setting& setting, Results& results) {
  Needs needs;
  for (const int64_t seed : setting.seeds)
    for (const Preset& preset : kPresets)
      needs.runs.push_back(arm(setting, preset, results).with("--seed", seed));
  return needs;
}

// Of a step, the median of those of a run; NaN where it has too few.
double step_time(const RunResult& run) {
  const std::vector<double> times = run.series("time_s").value;
  const auto cold = std::min(kWarmSteps, std::ssize(times));
  return statistics::median(std::vector<double>(times.begin() + cold, times.end()));
}

std::vector<double> over_seeds(const RunRequest& request, const Setting& setting, Results& results,
                               double (*figure)(const RunResult&)) {
  std::vector<double> values;
  for (const int64_t seed : setting.seeds)
    values.push_back(figure(results.result(request.with("--seed", seed))));
  return values;
}
double memory_of(const RunResult& run) { return run.figure("peak_memory_bytes"); }

Outcome judge(const Setting& setting, Results& results) {
  const RunRequest fp32 = arm(setting, kPresets[0], results);
  const statistics::BySeed baseline = losses_of(fp32, setting, results);
  const double memory = statistics::median(over_seeds(fp32, setting, results, memory_of));
  const std::vector<double> times = over_seeds(fp32, setting, results, step_time);
  Outcome outcome;
  AmpGains gains{
      .memory = 0,
      .loss = {},
      .time = {"time of a step in amp-bf16, over fp32's", ""},
      .bf16 = cpu::has_native_bf16() ? AmpGains::Bf16::native : AmpGains::Bf16::emulated};
  Series held{.name = "most memory held"}, took{.name = "time of a step"};
  Chart memories{
      .title = "Memory", .kind = ChartKind::bar, .x = {"preset"}, .y = {"most memory held", "MB"}};
  Chart speeds{.title = "Time where it is native",
               .kind = ChartKind::bar,
               .x = {"preset"},
               .y = {"time of a step, over fp32's"},
               .note =
                   "Medians of runs in turns, with intervals of 95 %. fp16 is emulated here: "
                   "its time says nothing."};
  for (const Preset& preset : kPresets) {
    const RunRequest request = arm(setting, preset, results);
    const double bytes = statistics::median(over_seeds(request, setting, results, memory_of));
    outcome.figures.push_back(
        {fmt::format("most memory held, {}", preset.name), "MB", bytes / 1e6});
    memories.categories.emplace_back(preset.name);
    held.y.push_back(bytes / 1e6);
    if (&preset == &kPresets[0]) continue;
    const auto loss = statistics::test_margin(
        statistics::paired_differences(losses_of(request, setting, results), baseline), kMargin);
    outcome.figures.push_back(
        difference_figure(fmt::format("loss of {}, over fp32's", preset.name), "nats", loss));
    if (timed(preset)) {
      const statistics::Median ratio = statistics::ratio_of_turns(
          over_seeds(request, setting, results, step_time), times, kConfidence);
      const Figure time{fmt::format("time of a step in {}, over fp32's", preset.name), "",
                        ratio.value, ratio.interval, std::ssize(setting.seeds)};
      outcome.figures.push_back(time);
      speeds.categories.emplace_back(preset.name);
      took.y.push_back(ratio.value);
      took.low.push_back(ratio.interval ? ratio.interval->low : ratio.value);
      took.high.push_back(ratio.interval ? ratio.interval->high : ratio.value);
      if (&preset == &kPresets[kAmp]) gains.time = time;
    }
    if (&preset == &kPresets[kAmp]) {
      gains.memory = bytes / memory;
      gains.loss = loss;
    }
  }
  memories.series = {held};
  outcome.charts = {memories};
  if (!took.y.empty()) {
    speeds.series = {took};
    outcome.charts.push_back(speeds);
  }
  outcome.figures.push_back({"memory of amp-bf16, over fp32's", "", gains.memory});
  outcome.verdict = judge_amp_gains(gains);
  if (gains.bf16 == AmpGains::Bf16::native)
    outcome.verdict.size->reason +=
        cpu::bf16_products() == cpu::Bf16Products::native
            ? "; products by the processor's bf16 instructions"
            : "; products of widened bf16, which this processor multiplies faster than by its own "
              "bf16 instructions";
  outcome.takeaway =
      "Mixed precision saves activations, not parameters, so the saving grows with the batch; "
      "accuracy is not what it costs. Speed is the processor's affair: with units for bf16 (AMX, "
      "tensor cores) it is large, with fp32 units of the same width there is nothing to gain, and "
      "casts are not free. Measure before you count on it.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "B4e",
     .source = "document B, mixed precision",
     .statement = "AMP saves memory and speeds computing up at full accuracy.",
     .done = "A GPT of width 128 trained in fp32 and with every preset of low precision at the "
             "learning rate that suits fp32: the most memory that is held, validation losses by "
             "seed, and, where the processor has bf16 instructions, the median time of a step, "
             "each run alone on the machine and presets in turns, as often as there are seeds. "
             "fp16 is emulated: its time is not reported.",
     .rule = "Of amp-bf16. Direction, memory and accuracy: reproduced where the most memory held "
             "is at most 0.90 of fp32's and the loss is equivalent within 0.02 nats (paired "
             "test); not where it is more than fp32's memory and beyond the margin; in part where "
             "one holds, or memory lies between. Size, speed: reproduced where a step takes at "
             "most 0.95 of fp32's time (95 % interval of the median ratio), not where it takes "
             "longer than in fp32, in part between; not testable here without native bf16.",
     .needed = {.steps = 200, .seeds = kTurns},
     .quick = {.steps = 20, .seeds = 2},
     .full = {.steps = 1000, .seeds = 10},
     .ask = ask,
     .ask_again = ask_again,
     .judge = judge}};

}  // namespace

Verdict judge_amp_gains(const AmpGains& gains) {
  const Judgement parts[] = {
      at_most({"memory of amp-bf16, over fp32's", "", gains.memory}, 0.90, 1.0,
              Provenance::measured),
      same(difference_figure("loss of amp-bf16, over fp32's", "nats", gains.loss), gains.loss)};
  Judgement speed = at_most(gains.time, 0.95, 1.0, Provenance::measured);
  if (gains.bf16 == AmpGains::Bf16::emulated)
    speed = {Finding::not_testable, Provenance::measured,
             "this processor has no bf16 instructions, and emulated time is not reported"};
  return {all_of(parts), speed};
}

}  // namespace lockstep::apps
