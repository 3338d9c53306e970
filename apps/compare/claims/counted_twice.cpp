// A1c: "8 ranks: accumulation mixed with synchronisation counted the gradient 8 times and training
// blew up; reduce once, before the step". Both ways to get there: the running sum reduced after
// every micro-batch, and one reduction whose sum nobody divides.
#include "apps/compare/claims/counted_twice.h"

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

constexpr int64_t kRanks = 8, kMicro = 4;
constexpr double kMargin = 0.02;     // nats
constexpr double kSmallRate = 3e-5;  // for which the loss falls in proportion to the gradient
constexpr const char* kTeach[] = {"none", "reduce-running", "sum"};
constexpr const char* kNames[] = {"right", "reduced after every micro-batch", "not divided"};

struct Optimizer {
  const char *name, *spec;
  double rates[4];
};
constexpr Optimizer kOptimizers[] = {{"SGD", "sgd", {0.125, 0.25, 0.5, 1}},
                                     {"AdamW", "adamw", {1e-3, 2e-3, 4e-3, 8e-3}}};

RunRequest one_step(const char* teach, double rate) {
  return tiny_gpt(kRanks, 1)
      .with("--accumulate", kMicro)
      .with("--optimizer", "sgd")
      .with("--val-tokens", 4096)
      .with("--teach", teach)
      .with("--lr", rate);
}

RunRequest arm(const Setting& setting, const Optimizer& optimizer, const char* teach) {
  return small_gpt(setting, 0)
      .with("--layers", 1)
      .with("--width", 32)
      .with("--context", 16)
      .with("--batch", 1)
      .with("--ranks", kRanks)
      .with("--accumulate", kMicro)
      .with("--optimizer", optimizer.spec)
      .with("--teach", teach);
}

Needs ask(const Setting& setting) {
  Needs needs;
  for (const char* teach : kTeach)
    for (const double rate : {0.0, kSmallRate}) needs.runs.push_back(one_step(teach, rate));
  for (const Optimizer& optimizer : kOptimizers)
    std::ranges::copy(tuning_runs(arm(setting, optimizer, "none"), optimizer.rates, setting),
                      std::back_inserter(needs.runs));
  return needs;
}

// All at the rate that is best for the right way: who makes the mistake does not know of it.
RunRequest tuned(const Setting& setting, const Optimizer& optimizer, const char* teach,
                 Results& results) {
  const double rate = best_rate(arm(setting, optimizer, "none"), optimizer.rates, setting, results);
  return arm(setting, optimizer, teach).with("--lr", rate);
}

Needs ask_again(const Setting& setting, Results& results) {
  Needs needs;
  for (const Optimizer& optimizer : kOptimizers)
    for (const char* teach : kTeach)
      std::ranges::copy(reporting_runs(tuned(setting, optimizer, teach, results), setting),
                        std::back_inserter(needs.runs));
  return needs;
}

double fall(const char* teach, Results& results) {
  return results.result(one_step(teach, 0)).figure("val_loss") -
         results.result(one_step(teach, kSmallRate)).figure("val_loss");
}

Outcome judge(const Setting& setting, Results& results) {
  Outcome outcome;
  const auto of = [&](const char* teach) {
    return Mistake{fall(teach, results) / fall("none", results),
                   losses_of(tuned(setting, kOptimizers[0], teach, results), setting, results)};
  };
  const Mistake mixed = of("reduce-running"), undivided = of("sum");
  const statistics::BySeed right =
      losses_of(tuned(setting, kOptimizers[0], "none", results), setting, results);
  outcome.verdict = judge_counted_twice(right, mixed, undivided);
  outcome.figures = {
      {"gradient reduced after every micro-batch, times the right one", "", mixed.factor},
      {"gradient not divided, times the right one", "", undivided.factor}};
  for (const Optimizer& optimizer : kOptimizers) {
    const auto baseline = losses_of(tuned(setting, optimizer, "none", results), setting, results);
    Chart chart{.title = fmt::format("Training loss, {}", optimizer.name),
                .kind = ChartKind::line,
                .x = {"steps"},
                .y = {"loss", "nats"},
                .note =
                    "A curve that ends early diverged. The learning rate is the one that is "
                    "best for the right way."};
    for (size_t t = 0; t < std::size(kTeach); ++t) {
      const RunRequest request = tuned(setting, optimizer, kTeach[t], results);
      const Points curve = results.result(request.with("--seed", setting.seeds[0])).series("loss");
      chart.series.push_back({.name = kNames[t], .x = curve.step, .y = curve.value});
      if (t == 0) continue;
      const auto test = statistics::test_margin(
          statistics::paired_differences(losses_of(request, setting, results), baseline), kMargin);
      outcome.figures.push_back(difference_figure(
          fmt::format("loss {}, {}, over the right way's", kNames[t], optimizer.name), "nats",
          test));
    }
    outcome.charts.push_back(chart);
  }
  const double calls = results.result(one_step("none", kSmallRate)).figure("all_reduce_calls"),
               more = results.result(one_step("reduce-running", kSmallRate))
                          .figure("all_reduce_calls");
  outcome.figures.push_back(
      {"all-reduces a step, reduced after every micro-batch over once", "", more / calls});
  outcome.takeaway =
      "Add up locally, reduce once, divide once. A forgotten division is a factor of the number of "
      "ranks; reducing the running sum is worse, and grows with every micro-batch. Adam hides "
      "both, as it divides by the gradient's own size: a run that looks well may still be wrong.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "A1c",
     .source = "document A, gradient accumulation",
     .statement = "8 ranks that mix accumulation with synchronisation count the gradient 8 times, "
                  "and training blows up.",
     .done =
         "8 ranks with 4 micro-batches: the gradient's factor from how far one tiny step of SGD "
         "lowers the loss; then a small GPT trained with SGD and with AdamW, right and with "
         "each mistake on purpose, all at the learning rate that suits the right way.",
     .rule = "Direction: reproduced where with SGD both mistakes end above the right way's loss by "
             "more than 0.02 nats (paired test) or diverge on every seed, in part where one does. "
             "Size: reproduced where the gradient reduced after every micro-batch is 8 ± 0.4 times "
             "the right one, in part where only the undivided one is.",
     .needed = {.steps = 200, .seeds = 3},
     .quick = {.steps = 200, .seeds = 3},
     .full = {.steps = 1000, .seeds = 5},
     .ask = ask,
     .ask_again = ask_again,
     .judge = judge}};

// Worse beyond the margin; diverging on every seed, where the right way never does, is that, too.
Judgement worse(const std::string& what, const statistics::BySeed& right,
                const statistics::BySeed& wrong) {
  const auto finite = [](const auto& entry) { return std::isfinite(entry.second); };
  if (!wrong.empty() && std::ranges::none_of(wrong, finite) && std::ranges::all_of(right, finite))
    return {Finding::reproduced, Provenance::measured,
            fmt::format("{} diverged on all {} seeds", what, wrong.size())};
  const auto test = statistics::test_margin(statistics::paired_differences(wrong, right), kMargin);
  return larger(difference_figure("loss " + what + " over the right way's", "nats", test), test);
}

bool eightfold(double factor) { return std::abs(factor - kRanks) <= 0.05 * kRanks; }

}  // namespace

Verdict judge_counted_twice(const statistics::BySeed& right, const Mistake& mixed,
                            const Mistake& undivided) {
  const Judgement parts[] = {worse("reduced after every micro-batch", right, mixed.losses),
                             worse("not divided", right, undivided.losses)};
  const bool known = std::isfinite(mixed.factor) && std::isfinite(undivided.factor);
  return {all_of(parts),
          Judgement{!known                        ? Finding::inconclusive
                    : eightfold(mixed.factor)     ? Finding::reproduced
                    : eightfold(undivided.factor) ? Finding::in_part
                                                  : Finding::not_reproduced,
                    Provenance::measured,
                    fmt::format("reduced after every micro-batch the gradient is {} times the "
                                "right one, not divided {} times",
                                short_number(mixed.factor), short_number(undivided.factor))}};
}

}  // namespace lockstep::apps
