// B3b: "BN statistics differ under accumulation: use SyncBN or freeze BN". The oracle is the large
// batch on one rank; the split over ranks and the one over micro-batches are told apart.
#include "apps/compare/claims/norm_splits.h"

#include "apps/compare/verdict_rules.h"
#include "apps/compare/verdict_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::apps {
namespace {

constexpr int64_t kBatch = 64, kFirst = 10, kPretraining = 100;
constexpr double kMargin = 0.5;                    // points of accuracy
constexpr double kSame = 1e-5, kDifferent = 1e-4;  // of a loss, nats

struct Split {
  const char* name;
  int64_t ranks, accumulate;
};
constexpr Split kWhole{"1 rank, the whole batch", 1, 1}, kRanks{"8 ranks", 8, 1},
    kTime{"1 rank, 8 micro-batches", 1, 8}, kBoth{"2 ranks, 4 micro-batches", 2, 4};

RunRequest net(int64_t seed) {
  return RunRequest{.app = "vision",
                    .options = {{"--data", "synthetic:size=24"},
                                {"--width", "8"},
                                {"--blocks", "1"},
                                {"--val-samples", "10000"},
                                {"--eval-every", "0"}}}
      .with("--seed", seed);
}

// Common to all arms with frozen statistics.
RunRequest pretraining(int64_t seed) {
  return net(seed)
      .with("--batch", kBatch)
      .with("--steps", kPretraining)
      .with("--schedule", "constant")
      .with("--warmup", 0);
}

RunRequest arm(const Setting& setting, int64_t seed, const char* norm, const Split& split) {
  return net(seed)
      .with("--norm", norm)
      .with("--steps", setting.steps)
      .with("--ranks", split.ranks)
      .with("--accumulate", split.accumulate)
      .with("--batch", kBatch / (split.ranks * split.accumulate));
}

RunRequest frozen_arm(const Setting& setting, int64_t seed, const Split& split, Results& results) {
  return arm(setting, seed, "frozen_batch", split)
      .with("--init", results.folder(results.key_of(pretraining(seed))) + "/model.safetensors");
}

// Its first ten steps by plain SGD, which leaves rounding as small as it is: AdamW divides it by
// gradients near zero.
RunRequest first_steps(const RunRequest& request) {
  return request.with("--steps", kFirst)
      .with("--optimizer", "sgd")
      .with("--lr", 0.1)
      .with("--schedule", "constant")
      .with("--warmup", 0)
      .with("--val-samples", kBatch);
}

void add(Needs& needs, const RunRequest& request) {
  needs.runs.push_back(request);
  needs.runs.push_back(first_steps(request));
}

struct Arm {
  const char *name, *norm;
  Split split;
};
constexpr Arm kArms[] = {{"batch, over ranks", "batch", kRanks},
                         {"batch, over time", "batch", kTime},
                         {"SyncBN, over ranks", "sync_batch", kRanks},
                         {"SyncBN, over ranks and time", "sync_batch", kBoth},
                         {"frozen, over ranks", "frozen_batch", kRanks},
                         {"frozen, over time", "frozen_batch", kTime}};

bool frozen(const Arm& a) { return std::string_view(a.norm) == "frozen_batch"; }

RunRequest run_of(const Arm& a, const Setting& setting, int64_t seed, Results& results) {
  return frozen(a) ? frozen_arm(setting, seed, a.split, results)
                   : arm(setting, seed, a.norm, a.split);
}
RunRequest oracle_of(const Arm& a, const Setting& setting, int64_t seed, Results& results) {
  return frozen(a) ? frozen_arm(setting, seed, kWhole, results)
                   : arm(setting, seed, "batch", kWhole);
}

Needs ask(const Setting& setting) {
  Needs needs;
  for (const int64_t seed : setting.seeds) {
    needs.runs.push_back(pretraining(seed));
    add(needs, arm(setting, seed, "batch", kWhole));
    for (const Arm& a : kArms)
      if (!frozen(a)) add(needs, arm(setting, seed, a.norm, a.split));
  }
  return needs;
}

Needs ask_again(const Setting& setting, Results& results) {
  Needs needs;
  for (const int64_t seed : setting.seeds) {
    add(needs, frozen_arm(setting, seed, kWhole, results));
    for (const Arm& a : kArms)
      if (frozen(a)) add(needs, frozen_arm(setting, seed, a.split, results));
  }
  return needs;
}

double first_difference(const RunResult& a, const RunResult& b) {
  const Points x = a.series("loss"), y = b.series("loss");
  double largest = 0;
  for (size_t i = 0; i < kFirst; ++i) {
    if (i >= x.value.size() || i >= y.value.size()) return NAN;
    largest = std::max(largest, std::abs(x.value[i] - y.value[i]));
  }
  return largest;
}

NormSplit measure(const Arm& a, const Setting& setting, Results& results) {
  NormSplit split;
  statistics::BySeed divided, whole;
  for (const int64_t seed : setting.seeds) {
    const RunRequest request = run_of(a, setting, seed, results),
                     oracle = oracle_of(a, setting, seed, results);
    divided[seed] = 100 * results.result(request).figure("val_accuracy");
    whole[seed] = 100 * results.result(oracle).figure("val_accuracy");
    split.first_losses =
        std::max(split.first_losses, first_difference(results.result(first_steps(request)),
                                                      results.result(first_steps(oracle))));
  }
  split.accuracy = statistics::test_margin(statistics::paired_differences(divided, whole), kMargin);
  return split;
}

Figure first_figure(const std::string& name, double value) {
  return {"loss of ten SGD steps, " + name + ", off the large batch's", "nats", value};
}

Outcome judge(const Setting& setting, Results& results) {
  Outcome outcome;
  NormSplit batch, sync, still;
  Chart chart{.title = "Accuracy beside that of the large batch",
              .kind = ChartKind::bar,
              .x = {"normalisation, split"},
              .y = {"difference", "points"},
              .note = "Means over seeds, with intervals of 90 %."};
  Series bars{.name = "split - large batch"};
  for (const Arm& a : kArms) {
    const NormSplit split = measure(a, setting, results);
    const std::string_view name = a.name;
    if (name == "batch, over time") batch = split;
    if (name == "SyncBN, over ranks and time") sync = split;
    if (name == "frozen, over time") still = split;
    outcome.figures.push_back(first_figure(a.name, split.first_losses));
    outcome.figures.push_back(difference_figure(
        fmt::format("accuracy {}, over the large batch's", a.name), "points", split.accuracy));
    chart.categories.emplace_back(a.name);
    bars.y.push_back(split.accuracy.spread.mean);
    const Interval interval = split.accuracy.interval.value_or(
        Interval{split.accuracy.spread.mean, split.accuracy.spread.mean});
    bars.low.push_back(interval.low);
    bars.high.push_back(interval.high);
  }
  chart.series.push_back(bars);
  outcome.charts.push_back(chart);
  outcome.verdict.direction = judge_norm_splits(batch, sync, still);
  outcome.takeaway =
      "SyncBN mends a batch that is split over ranks, since they are there at the same time; it "
      "cannot join micro-batches that follow each other. Frozen statistics mend both, and so do "
      "norms of single samples (--norm group). Where micro-batches of all ranks together are not "
      "small, what SyncBN leaves is no loss of accuracy.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "B3b",
     .source = "document B, gradient accumulation",
     .statement = "Batch normalisation's statistics of micro-batches are not those of the large "
                  "batch: use SyncBN, or freeze them.",
     .done =
         "A small residual net on generated images, 64 a step: as one batch, as 8 ranks of 8, as 8 "
         "micro-batches of 8, and on 2 ranks with 4 micro-batches each; with batch statistics, "
         "SyncBN, and statistics frozen after 100 common steps. Whether it is the same computation "
         "is seen in the training losses of ten steps of plain SGD, whether it matters in the "
         "accuracy on 10,000 held-out images after training with AdamW.",
     .rule = "Three parts. Batch statistics over 8 micro-batches: reproduced where a loss of the "
             "ten SGD steps differs from the large batch's by more than 1e-4 nats and accuracy is "
             "lower by more than 0.5 points (paired test), in part where only the loss differs. "
             "SyncBN over ranks and time, and frozen statistics over time: reproduced where no "
             "such loss differs by more than 1e-5, not reproduced where one differs by more than "
             "1e-4. Reproduced where all three are, in part where some are.",
     .needed = {.steps = 600, .seeds = 3},
     .quick = {.steps = 60, .seeds = 1},
     .full = {.steps = 2000, .seeds = 5},
     .ask = ask,
     .ask_again = ask_again,
     .judge = judge}};

// The same computation as the large batch.
Judgement mended(const std::string& what, const NormSplit& split) {
  return {split.first_losses <= kSame       ? Finding::reproduced
          : split.first_losses > kDifferent ? Finding::not_reproduced
                                            : Finding::inconclusive,
          Provenance::measured,
          fmt::format("{}: losses of ten SGD steps {} nats off", what,
                      short_number(split.first_losses))};
}

}  // namespace

Judgement judge_norm_splits(const NormSplit& batch, const NormSplit& sync,
                            const NormSplit& frozen) {
  using statistics::Shown;
  const Figure accuracy = difference_figure(
      "accuracy of batch statistics over time, over the large batch's", "points", batch.accuracy);
  const bool differs = batch.first_losses > kDifferent;
  const Judgement parts[] = {
      {!std::isfinite(batch.first_losses) || batch.accuracy.shown == Shown::undefined
           ? Finding::inconclusive
       : !differs                               ? Finding::not_reproduced
       : batch.accuracy.shown == Shown::below   ? Finding::reproduced
       : batch.accuracy.shown == Shown::nothing ? Finding::inconclusive
                                                : Finding::in_part,
       Provenance::measured,
       fmt::format("losses of ten SGD steps {} nats off, {}", short_number(batch.first_losses),
                   text_of(accuracy))},
      mended("SyncBN over ranks and time", sync),
      mended("frozen statistics over time", frozen)};
  return all_of(parts);
}

}  // namespace lockstep::apps
