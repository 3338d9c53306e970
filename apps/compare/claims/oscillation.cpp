// A2d: "0.1 % kept: fine for 1,000 steps, oscillating at 5,000; error compensation fixed it", and
// what it may be instead: a bias that is there from the start, and feedback that momentum blows up.
#include "apps/compare/claims/oscillation.h"

#include "apps/compare/claims/models.h"
#include "apps/compare/claims/tuning.h"
#include "apps/compare/statistics/curves.h"
#include "apps/compare/statistics/rates.h"
#include "apps/compare/verdict_rules.h"
#include "apps/compare/verdict_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <vector>

namespace lockstep::apps {
namespace {

constexpr double kCalm = 1.25, kOscillating = 2, kMargin = 0.02, kConfidence = 0.95;
constexpr double kEarly[] = {0, 1000}, kLate[] = {4500, 5500};
constexpr int64_t kSteps = 6000, kEvery = 25, kSeeds = 5;
constexpr double kUniform = 5.545177444479562;  // ln 256: a uniform guess of bytes

struct Optimizer {
  const char *name, *spec;
  double momentum;
  double rates[4];
};
constexpr Optimizer kOptimizers[] = {{"SGD", "sgd", 0, {0.03125, 0.125, 0.5, 2}},
                                     {"momentum", "sgd", 0.9, {0.003125, 0.0125, 0.05, 0.2}},
                                     {"AdamW", "adamw", 0, {2.5e-4, 1e-3, 4e-3, 1.6e-2}}};
constexpr size_t kPreviewRate = 2;

enum class Sent { all, top, top_with_feedback };
constexpr Sent kSent[] = {Sent::all, Sent::top, Sent::top_with_feedback};
const char* name_of(Sent sent) {
  return sent == Sent::all ? "dense" : sent == Sent::top ? "top-0.1 %" : "top-0.1 % with feedback";
}

RunRequest arm(const Setting& setting, const Optimizer& optimizer, Sent sent) {
  RunRequest request = small_gpt(setting, 0)
                           .with("--layers", 1)
                           .with("--width", 32)
                           .with("--context", 16)
                           .with("--batch", 4)
                           .with("--ranks", 2)
                           .with("--schedule", "constant")
                           .with("--optimizer", optimizer.spec)
                           .with("--eval-every", kEvery)
                           .with("--val-tokens", 8192);
  if (optimizer.momentum > 0) request = request.with("--momentum", optimizer.momentum);
  if (sent == Sent::all) return request;
  return request.with("--compress", sent == Sent::top ? "topk:ratio=0.001" : "topk:ratio=0.001+ef");
}

enum class Rate { own, of_dense };
RunRequest tuned(const Setting& setting, const Optimizer& optimizer, Sent sent, Rate rate,
                 Results& results) {
  const RunRequest request = arm(setting, optimizer, sent);
  if (setting.extent == Extent::quick) return request.with("--lr", optimizer.rates[kPreviewRate]);
  const double best = best_rate(rate == Rate::own ? request : arm(setting, optimizer, Sent::all),
                                optimizer.rates, setting, results);
  // The lowest where it diverged at all of them.
  return request.with("--lr", std::isfinite(best) ? best : optimizer.rates[0]);
}

void add(Needs& needs, const std::vector<RunRequest>& runs) {
  std::ranges::copy(runs, std::back_inserter(needs.runs));
}

// The same for all three claims. A preview has one learning rate for each optimiser.
Needs ask(const Setting& setting) {
  Needs needs;
  for (const Optimizer& optimizer : kOptimizers)
    for (const Sent sent : kSent) {
      const RunRequest request = arm(setting, optimizer, sent);
      add(needs, setting.extent == Extent::quick
                     ? reporting_runs(request.with("--lr", optimizer.rates[kPreviewRate]), setting)
                     : tuning_runs(request, optimizer.rates, setting));
    }
  return needs;
}

Needs ask_again(const Setting& setting, Results& results) {
  Needs needs;
  for (const Optimizer& optimizer : kOptimizers)
    for (const Sent sent : kSent)
      for (const Rate rate : {Rate::own, Rate::of_dense})
        add(needs, reporting_runs(tuned(setting, optimizer, sent, rate, results), setting));
  return needs;
}

Points curve(const RunRequest& request, int64_t seed, Results& results) {
  return results.result(request.with("--seed", seed)).series("val_loss");
}

Figure index(const std::string& name, const RunRequest& request, const RunRequest& dense,
             const double (&window)[2], const Setting& setting, Results& results) {
  std::vector<double> indices;
  for (const int64_t seed : setting.seeds)
    indices.push_back(jaggedness_between(curve(request, seed, results), window[0], window[1]) /
                      jaggedness_between(curve(dense, seed, results), window[0], window[1]));
  return mean_figure(name, "", indices);
}

Oscillation oscillation(const Setting& setting, const Optimizer& optimizer, Rate rate,
                        Results& results) {
  const auto of = [&](Sent sent, const double(&window)[2]) {
    return index(fmt::format("oscillation index in steps {} to {}, {}, {}{}", window[0], window[1],
                             optimizer.name, name_of(sent),
                             rate == Rate::own ? "" : ", at the dense learning rate"),
                 tuned(setting, optimizer, sent, rate, results),
                 tuned(setting, optimizer, Sent::all, Rate::own, results), window, setting,
                 results);
  };
  return {.optimizer = optimizer.name,
          .early = of(Sent::top, kEarly),
          .late = of(Sent::top, kLate),
          .fed_early = of(Sent::top_with_feedback, kEarly),
          .fed_late = of(Sent::top_with_feedback, kLate)};
}

Chart curves(const Setting& setting, const Optimizer& optimizer, Results& results) {
  Chart chart{.title = fmt::format("Validation loss, {}", optimizer.name),
              .kind = ChartKind::line,
              .x = {"steps"},
              .y = {"validation loss", "nats"},
              .note = "The first seed, each at its own learning rate."};
  for (const Sent sent : kSent) {
    const Points points =
        curve(tuned(setting, optimizer, sent, Rate::own, results), setting.seeds[0], results);
    chart.series.push_back({.name = name_of(sent), .x = points.step, .y = points.value});
  }
  return chart;
}

Outcome judge(const Setting& setting, Results& results) {
  Outcome outcome;
  std::vector<Oscillation> found;
  for (const Optimizer& optimizer : kOptimizers) {
    for (const Rate rate : {Rate::own, Rate::of_dense}) {
      if (rate == Rate::of_dense && setting.extent == Extent::quick) continue;
      const Oscillation o = oscillation(setting, optimizer, rate, results);
      outcome.figures.insert(outcome.figures.end(), {o.early, o.late, o.fed_early, o.fed_late});
      if (rate == Rate::own) found.push_back(o);
    }
    outcome.charts.push_back(curves(setting, optimizer, results));
  }
  outcome.verdict.direction = judge_oscillation(found);
  outcome.takeaway =
      "Look at the loss beside the dense run's as well as at how it jumps: a curve may be smooth "
      "and too high. With feedback, what was left out comes later, in jumps that an optimiser "
      "with a memory of its own may make larger.";
  return outcome;
}

constexpr const char* kDone =
    "A small GPT on 2 ranks with plain SGD, momentum 0.9 and AdamW, dense and with the 0.1 % "
    "largest of each tensor (at least one), with and without error feedback; each at the best of "
    "four constant learning rates, a factor of 4 apart, over 6,000 steps. Validation loss every 25 "
    "steps on the same 8,192 tokens, as 64k tokens so often would cost more than training. A "
    "preview has one learning rate for each optimiser.";

Claim claim_of(const char* id, const char* statement, const char* rule,
               Outcome (*judgement)(const Setting&, Results&)) {
  return {.id = id,
          .source = "document A, compression",
          .statement = statement,
          .done = kDone,
          .rule = rule,
          .needed = {.steps = kSteps, .seeds = kSeeds},
          .quick = {.steps = 1000, .seeds = 2},
          .ask = ask,
          .ask_again = ask_again,
          .judge = judgement};
}

const RegisterClaim registered{claim_of(
    "A2d",
    "With 0.1 % of the gradient kept training is fine for 1,000 steps and oscillates at 5,000, and "
    "error compensation fixes it.",
    "Oscillation index: the standard deviation of first differences of validation loss every 25 "
    "steps, over the dense run's of the same seed; intervals of 95 % over seeds. Under one "
    "optimiser: reproduced where without feedback it is below 1.25 in steps 0 to 1,000 and above 2 "
    "in 4,500 to 5,500, and with feedback below 1.25 in both; not reproduced where it is not above "
    "2 in 4,500 to 5,500, else in part. Reproduced where so under all three optimisers, in part "
    "where under some or in part, not where under none.",
    judge)};

statistics::BySeed losses_at(const RunRequest& request, double step, const Setting& setting,
                             Results& results) {
  statistics::BySeed losses;
  for (const int64_t seed : setting.seeds) {
    const Points points = curve(request, seed, results);
    const auto at = std::ranges::find(points.step, step);
    losses[seed] =
        at == points.step.end() ? NAN : points.value[static_cast<size_t>(at - points.step.begin())];
  }
  return losses;
}

statistics::PairedTest gap_at(double step, const Setting& setting, const Optimizer& optimizer,
                              Sent sent, Results& results) {
  const auto losses = [&](Sent s) {
    return losses_at(tuned(setting, optimizer, s, Rate::own, results), step, setting, results);
  };
  return statistics::test_margin(statistics::paired_differences(losses(sent), losses(Sent::all)),
                                 kMargin);
}

Outcome judge_bias(const Setting& setting, Results& results) {
  Outcome outcome;
  std::vector<EarlyGap> found;
  for (const Optimizer& optimizer : kOptimizers) {
    found.push_back({optimizer.name, gap_at(kEarly[1], setting, optimizer, Sent::top, results)});
    for (const double step : {kEarly[1], static_cast<double>(kSteps)})
      for (const Sent sent : {Sent::top, Sent::top_with_feedback})
        outcome.figures.push_back(
            difference_figure(fmt::format("loss at step {} over the dense run's, {}, {}", step,
                                          optimizer.name, name_of(sent)),
                              "nats", gap_at(step, setting, optimizer, sent, results)));
    outcome.charts.push_back(curves(setting, optimizer, results));
  }
  outcome.verdict.direction = judge_early_gap(found);
  outcome.takeaway =
      "Without feedback what is never among the largest is never learnt: do not wait for trouble "
      "at step 5,000, compare with a dense run over the first thousand.";
  return outcome;
}

const RegisterClaim biased{claim_of(
    "A2d-bias",
    "Without error feedback top-0.1 % is worse from the start (what A2d may be instead).",
    "Loss at step 1,000 without feedback, over the dense run's: reproduced where it is higher by "
    "more than 0.02 nats under all three optimisers (paired tests), not where it is equivalent or "
    "lower under all, inconclusive where one is, else in part.",
    judge_bias)};

bool diverged(const RunResult& result) {
  const double loss = result.figure("val_loss");
  return !std::isfinite(loss) || loss > kUniform;
}

int64_t divergences(const Setting& setting, const Optimizer& optimizer, Results& results) {
  const RunRequest request =
      tuned(setting, optimizer, Sent::top_with_feedback, Rate::of_dense, results);
  return std::ranges::count_if(setting.seeds, [&](int64_t seed) {
    return diverged(results.result(request.with("--seed", seed)));
  });
}

Outcome judge_momentum(const Setting& setting, Results& results) {
  Outcome outcome;
  const auto seeds = static_cast<int64_t>(setting.seeds.size());
  std::array<int64_t, std::size(kOptimizers)> counts{};
  for (size_t i = 0; i < std::size(kOptimizers); ++i) {
    const Optimizer& optimizer = kOptimizers[i];
    counts[i] = divergences(setting, optimizer, results);
    const Interval rate = statistics::rate_interval(counts[i], seeds, kConfidence);
    outcome.figures.push_back(
        {fmt::format("runs with feedback that diverge at the dense learning rate, {}",
                     optimizer.name),
         "%", 100 * static_cast<double>(counts[i]) / static_cast<double>(seeds),
         Interval{100 * rate.low, 100 * rate.high}, seeds});
    const auto final_losses = [&](Sent sent, Rate rate_of) {
      return losses_of(tuned(setting, optimizer, sent, rate_of, results), setting, results);
    };
    for (const Rate rate_of : {Rate::own, Rate::of_dense}) {
      if (rate_of == Rate::of_dense && setting.extent == Extent::quick) continue;
      outcome.figures.push_back(difference_figure(
          fmt::format("loss with feedback at {} learning rate, over the dense run's, {}",
                      rate_of == Rate::own ? "its own" : "the dense", optimizer.name),
          "nats",
          statistics::test_margin(
              statistics::paired_differences(final_losses(Sent::top_with_feedback, rate_of),
                                             final_losses(Sent::all, Rate::own)),
              kMargin)));
    }
    outcome.charts.push_back(curves(setting, optimizer, results));
  }
  outcome.verdict.direction =
      judge_divergences({.momentum = counts[1], .plain = counts[0], .seeds = seeds});
  outcome.takeaway =
      "Feedback and momentum both keep what is past. Lower the learning rate, train with plain "
      "SGD, or make momentum part of the code, as deep gradient compression does "
      "(topk:momentum=0.9).";
  return outcome;
}

const RegisterClaim blown_up{claim_of(
    "A2d-momentum",
    "Error feedback of top-0.1 % diverges with momentum 0.9 at the learning rate of the dense run, "
    "and not with plain SGD (what A2d does not say).",
    "A run has diverged where it ends without a finite validation loss or above ln 256 = 5.55 "
    "nats, a uniform guess. Reproduced where with momentum all seeds diverge and with plain SGD "
    "none, not where none does with momentum, else in part.",
    judge_momentum)};

Judgement of_optimizer(const Oscillation& o) {
  const Judgement late = at_least(o.late, kOscillating, kOscillating, Provenance::measured);
  if (late.finding != Finding::reproduced) return late;
  const auto calm = [](const Figure& figure) {
    return at_most(figure, kCalm, kCalm, Provenance::measured);
  };
  const Judgement parts[] = {calm(o.early), late, calm(o.fed_early), calm(o.fed_late)};
  return all_of(parts);
}

}  // namespace

double jaggedness_between(const Points& curve, double first, double last) {
  std::vector<double> values;
  for (size_t i = 0; i < curve.step.size(); ++i)
    if (curve.step[i] >= first && curve.step[i] <= last) values.push_back(curve.value[i]);
  return statistics::jaggedness(values);
}

Judgement judge_oscillation(std::span<const Oscillation> optimizers) {
  Judgement all{Finding::inconclusive, Provenance::measured, ""};
  size_t reproduced = 0, refuted = 0, part = 0;
  for (const Oscillation& o : optimizers) {
    const Judgement one = of_optimizer(o);
    reproduced += one.finding == Finding::reproduced;
    refuted += one.finding == Finding::not_reproduced;
    part += one.finding == Finding::in_part;
    all.reason += fmt::format("{}{} {}: {}", all.reason.empty() ? "" : "; ", o.optimizer,
                              name_of(one.finding), one.reason);
  }
  all.finding = reproduced == optimizers.size() ? Finding::reproduced
                : refuted == optimizers.size()  ? Finding::not_reproduced
                : reproduced + part > 0         ? Finding::in_part
                                                : Finding::inconclusive;
  return all;
}

Judgement judge_early_gap(std::span<const EarlyGap> optimizers) {
  std::vector<Judgement> parts;
  for (const EarlyGap& gap : optimizers)
    parts.push_back(larger(
        difference_figure(fmt::format("loss at step 1000 over the dense run's, {}", gap.optimizer),
                          "nats", gap.loss),
        gap.loss));
  return all_of(parts);
}

Judgement judge_divergences(const Divergences& found) {
  return {found.seeds == 0                                    ? Finding::inconclusive
          : found.momentum == 0                               ? Finding::not_reproduced
          : found.momentum == found.seeds && found.plain == 0 ? Finding::reproduced
                                                              : Finding::in_part,
          Provenance::measured,
          fmt::format("with momentum {} of {} seeds diverge, with plain SGD {}", found.momentum,
                      found.seeds, found.plain)};
}

}  // namespace lockstep::apps
