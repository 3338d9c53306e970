// AB1: "A: all-reduce in FP16. B: never, use FP32". The documents contradict each other: A is right
// where an fp16 wire does no harm and is faster.
#include "apps/compare/claims/which_wire.h"

#include "apps/compare/claims/fp16_wire.h"
#include "apps/compare/claims/models.h"
#include "apps/compare/claims/tuning.h"
#include "apps/compare/verdict_rules.h"
#include "apps/compare/verdict_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace lockstep::apps {
namespace {

constexpr int64_t kRanks[] = {2, 8, 32}, kGlobalBatch = 32;
constexpr double kMargin = 0.02;  // nats
constexpr double kFaster = 0.95;  // of an fp32 wire's time
constexpr double kRates[] = {1e-3, 2e-3, 4e-3, 8e-3};
constexpr const char* kWires[] = {"fp32", "fp16", "bf16"};
constexpr const char* kScales[] = {"none", "dynamic"};
// Beside 2 ms of computing for 137 kB of gradients.
constexpr const char* kBandwidths[] = {"1Gbit", "10Gbit", "100Gbit"};
constexpr double kGbit[] = {1, 10, 100};

RunRequest base(const Setting& setting, int64_t ranks) {
  return small_gpt(setting, 0)
      .with("--layers", 1)
      .with("--width", 32)
      .with("--context", 16)
      .with("--ranks", ranks)
      .with("--batch", kGlobalBatch / ranks);
}
// All arms take part in the same steps, of the same samples: one learning rate for all.
RunRequest tuned(const Setting& setting, int64_t ranks, Results& results) {
  return base(setting, ranks)
      .with("--lr", best_rate(base(setting, kRanks[0]), kRates, setting, results));
}
RunRequest arm(const RunRequest& request, const char* wire, const char* scale) {
  return request.with("--wire", wire)
      .with("--scale", scale)
      .with("--probe", "gradients")
      .with("--probe-every", 20);
}
PerStep timed(const char* wire, int64_t ranks, const char* bandwidth) {
  return PerStep(
      tiny_gpt(ranks, 1)
          .with("--wire", wire)
          .with("--backend", "virtual")
          .with("--cluster", fmt::format("compute=2ms,latency=1us,bandwidth={}", bandwidth)));
}

Needs ask(const Setting& setting) {
  Needs needs{tuning_runs(base(setting, kRanks[0]), kRates, setting), {}};
  for (const int64_t ranks : kRanks)
    for (const char* wire : kWires)
      for (const char* bandwidth : kBandwidths) timed(wire, ranks, bandwidth).ask(needs);
  return needs;
}

Needs ask_again(const Setting& setting, Results& results) {
  Needs needs;
  for (const int64_t ranks : kRanks)
    for (const char* wire : kWires)
      for (const char* scale : kScales)
        std::ranges::copy(reporting_runs(arm(tuned(setting, ranks, results), wire, scale), setting),
                          std::back_inserter(needs.runs));
  return needs;
}

double time_over_fp32(const char* wire, int64_t ranks, const char* bandwidth, Results& results) {
  return timed(wire, ranks, bandwidth).of(results, "virtual_s") /
         timed("fp32", ranks, bandwidth).of(results, "virtual_s");
}

WireAtRanks look_at(int64_t ranks, const Setting& setting, Results& results, Outcome& outcome,
                    Series& zeros) {
  WireAtRanks at{.ranks = ranks, .loss = {}, .times = {}};
  const RunRequest request = tuned(setting, ranks, results);
  const statistics::BySeed baseline = losses_of(arm(request, "fp32", "none"), setting, results);
  for (const char* wire : kWires)
    for (const char* scale : kScales) {
      const std::string_view w = wire, s = scale;
      const RunRequest a = arm(request, wire, scale);
      const std::string name = fmt::format("{} wire, {}, {} ranks", w,
                                           s == "none" ? "no scale" : "dynamic scale", ranks);
      const double share = zeros_of(a, setting, results);
      outcome.figures.push_back({fmt::format("zeros, {}", name), "%", 100 * share});
      zeros.y.push_back(100 * share);
      if (w == "fp32" && s == "none") continue;
      const auto loss = statistics::test_margin(
          statistics::paired_differences(losses_of(a, setting, results), baseline), kMargin);
      outcome.figures.push_back(difference_figure(
          fmt::format("loss, {}, over an fp32 wire's without a scale", name), "nats", loss));
      if (w == "fp16" && s == "dynamic") at.loss = loss;
    }
  for (const char* bandwidth : kBandwidths) {
    at.times.push_back(time_over_fp32("fp16", ranks, bandwidth, results));
    for (const char* wire : {"fp16", "bf16"})
      outcome.figures.push_back({fmt::format("modelled step time of an {} wire over fp32's, {} "
                                             "ranks, {}",
                                             wire, ranks, bandwidth),
                                 "", time_over_fp32(wire, ranks, bandwidth, results)});
  }
  return at;
}

Outcome judge(const Setting& setting, Results& results) {
  Outcome outcome;
  std::vector<WireAtRanks> all;
  Chart zeros{.title = "Gradients that are zero on the wire",
              .kind = ChartKind::bar,
              .x = {"wire, loss scale"},
              .y = {"share of elements", "%"}};
  Chart times{.title = "What an fp16 wire is worth",
              .kind = ChartKind::line,
              .x = {"bandwidth of a link", "Gbit/s", Scale::log},
              .y = {"step time, over an fp32 wire's"},
              .note =
                  "Modelled, beside 2 ms of computing for 137 kB of gradients; exchanges hide "
                  "behind backward."};
  for (const char* wire : kWires)
    for (const char* scale : kScales)
      zeros.categories.push_back(fmt::format("{}, {}", wire, scale));
  for (const int64_t ranks : kRanks) {
    Series bars{.name = fmt::format("{} ranks", ranks)};
    all.push_back(look_at(ranks, setting, results, outcome, bars));
    zeros.series.push_back(bars);
    times.series.push_back({.name = fmt::format("{} ranks", ranks),
                            .x = {std::begin(kGbit), std::end(kGbit)},
                            .y = all.back().times});
  }
  outcome.verdict = judge_which_wire(all, {std::begin(kBandwidths), std::end(kBandwidths)});
  outcome.charts = {times, zeros};
  outcome.takeaway =
      "Whether two bytes pay is a matter of the network: where exchanges hide behind backward they "
      "save nothing, and FP32 costs nothing. Where they do not, take two bytes if the loss allows, "
      "keep the loss scale on through the wire and add in fp32. bf16 has the same bytes and needs "
      "no scale.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "AB1",
     .source = "documents A and B, mixed precision, which contradict each other",
     .statement = "Gradients should be all-reduced in FP16 (document A); never, use FP32 "
                  "(document B).",
     .done = "A small GPT computing in fp32 on 2, 8 and 32 ranks, 32 windows a step in all, with a "
             "wire of fp32, fp16 and bf16, without and with a dynamic loss scale, sums in fp32, at "
             "the learning rate that suits the fp32 wire on 2 ranks. Zeros on the wire are "
             "counted. Step times are modelled, for links of 1, 10 and 100 Gbit/s beside 2 ms of "
             "computing for 137 kB of gradients.",
     .rule = "Of an fp16 wire with a dynamic loss scale. Direction, that it does no harm: on all "
             "numbers of ranks the loss is equivalent to an fp32 wire's within 0.02 nats (paired "
             "test); in part on some, not reproduced where it is beyond the margin on all. Size, "
             "where A is right: reproduced where at every number of ranks and bandwidth it is "
             "equivalent and its modelled step takes at most 0.95 of the time, in part at some, "
             "not reproduced (B is right) at none.",
     .needed = {.steps = 200, .seeds = 3},
     .quick = {.steps = 60, .seeds = 2},
     .full = {.steps = 2000, .seeds = 5},
     .ask = ask,
     .ask_again = ask_again,
     .judge = judge}};

}  // namespace

Verdict judge_which_wire(const std::vector<WireAtRanks>& all,
                         const std::vector<std::string>& bandwidths) {
  using statistics::Shown;
  std::vector<Judgement> harmless;
  size_t cells = 0, right = 0;
  bool decided = true;
  std::string boundary;
  for (const WireAtRanks& at : all) {
    harmless.push_back(
        same(difference_figure(
                 fmt::format("loss of an fp16 wire over an fp32 one's, {} ranks", at.ranks), "nats",
                 at.loss),
             at.loss));
    const bool equivalent = at.loss.shown == Shown::equivalent;
    const bool harmful = at.loss.shown == Shown::above || at.loss.shown == Shown::below;
    std::string faster;
    for (size_t i = 0; i < at.times.size(); ++i) {
      ++cells;
      const bool pays = at.times[i] <= kFaster;
      // Nobody has to know whether it does harm where it is not faster.
      decided = decided && std::isfinite(at.times[i]) && (!pays || equivalent || harmful);
      if (pays && equivalent) ++right;
      if (pays)
        faster += fmt::format("{}{} ({})", faster.empty() ? "" : ", ", bandwidths[i],
                              short_number(at.times[i]));
    }
    boundary += fmt::format("{}{} ranks: {}, faster at {}", boundary.empty() ? "" : "; ", at.ranks,
                            equivalent ? "equivalent"
                            : harmful  ? "not equivalent"
                                       : "not decided whether equivalent",
                            faster.empty() ? "no bandwidth" : faster);
  }
  return {all_of(harmless), Judgement{!decided         ? Finding::inconclusive
                                      : right == cells ? Finding::reproduced
                                      : right > 0      ? Finding::in_part
                                                       : Finding::not_reproduced,
                                      Provenance::modelled, boundary}};
}

}  // namespace lockstep::apps
