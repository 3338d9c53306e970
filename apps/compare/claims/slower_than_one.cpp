// B0: "many cards trained slower than one; communication is the largest bottleneck". Modelled: the
// formulas of Note [Cost of communication] decide, and the run only says where.
#include "apps/compare/claims/slower_than_one.h"

#include "apps/compare/claims/models.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

constexpr int kRanks[] = {1, 2, 4, 8, 16, 32};
constexpr const char* kBandwidths[] = {"30Mbit", "100Mbit", "300Mbit", "1Gbit", "10Gbit"};
constexpr double kGbit[] = {0.03, 0.1, 0.3, 1, 10};

PerStep at(int ranks, const char* bandwidth) {
  return PerStep(
      tiny_gpt(ranks, 1)
          .with("--backend", "virtual")
          .with("--cluster", fmt::format("compute=5ms,latency=20us,bandwidth={}", bandwidth)));
}

Needs ask(const Setting&) {
  Needs needs;
  for (const char* bandwidth : kBandwidths)
    for (const int ranks : kRanks) at(ranks, bandwidth).ask(needs);
  return needs;
}

Outcome judge(const Setting&, Results& results) {
  std::vector<SpeedUp> grid;
  Chart chart{.title = "Samples a second over one rank's",
              .kind = ChartKind::line,
              .x = {"ranks", "", Scale::log},
              .y = {"speed-up", "", Scale::log},
              .note =
                  "Below 1 the cluster is slower than one of its ranks. 137 kB of gradients "
                  "for 5 ms of computing: scale both alike for a larger model."};
  Outcome outcome;
  for (size_t b = 0; b < std::size(kBandwidths); ++b) {
    const double alone = at(1, kBandwidths[b]).of(results, "virtual_s");
    Series series{.name = kBandwidths[b]};
    for (const int ranks : kRanks) {
      const PerStep step = at(ranks, kBandwidths[b]);
      const double seconds = step.of(results, "virtual_s");
      grid.push_back(
          {ranks, kGbit[b], ranks * alone / seconds, step.of(results, "exposed_comm_s") / seconds});
      series.x.push_back(ranks);
      series.y.push_back(grid.back().times);
    }
    chart.series.push_back(series);
    for (const size_t n : {size_t{1}, size_t{3}, size_t{5}}) {
      const SpeedUp& cell = grid[b * std::size(kRanks) + n];
      outcome.figures.push_back(
          {fmt::format("speed-up of {} ranks at {}", cell.ranks, kBandwidths[b]), "", cell.times});
    }
  }
  outcome.verdict = judge_speed_ups(grid);
  outcome.charts = {chart};
  outcome.takeaway =
      "A ring takes 2·bytes/bandwidth however many ranks there are. Where that is several times "
      "the computing of a step, few ranks lose to one, and adding ranks only slowly mends it: make "
      "steps longer (accumulation, larger batches) or messages smaller before you add machines.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "B0",
     .source = "document B, introduction",
     .statement = "Many cards trained slower than one; communication is the largest bottleneck.",
     .done =
         "1 to 32 ranks all-reduce on modelled links of 0.03 to 10 Gbit/s, 5 ms of computing "
         "for 137 kB of gradients, the same batch a rank: speed-up over one rank, and the share "
         "of the step in which a rank waits for communication. No real network was limited: "
         "all of it is modelled.",
     .rule = "Direction: reproduced (modelled) where some cell with more than one rank has a "
             "speed-up below 1, not reproduced where none has. Size: reproduced where in all those "
             "cells exposed communication is more than half of the step, in part where in some.",
     .ask = ask,
     .judge = judge}};

}  // namespace

Verdict judge_speed_ups(const std::vector<SpeedUp>& grid) {
  int64_t slower = 0, bound = 0;
  const SpeedUp* most = nullptr;  // the largest that loses
  for (const SpeedUp& cell : grid) {
    if (cell.ranks == 1 || !(cell.times < 1)) continue;
    ++slower;
    bound += cell.communicating > 0.5 ? 1 : 0;
    if (most == nullptr || cell.ranks > most->ranks ||
        (cell.ranks == most->ranks && cell.gbit > most->gbit))
      most = &cell;
  }
  if (slower == 0)
    return {{Finding::not_reproduced, Provenance::modelled, "no cell is slower than one rank"}, {}};
  return {
      {Finding::reproduced, Provenance::modelled,
       fmt::format("{} cells are slower than one rank; the largest, {} ranks at {} Gbit/s, {:.2f} "
                   "times as fast",
                   slower, most->ranks, most->gbit, most->times)},
      Judgement{bound == slower ? Finding::reproduced
                : bound > 0     ? Finding::in_part
                                : Finding::not_reproduced,
                Provenance::modelled,
                fmt::format("in {} of these {} communication is more than half of the step", bound,
                            slower)}};
}

}  // namespace lockstep::apps
