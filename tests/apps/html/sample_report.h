#pragma once
#include <cmath>
#include <limits>
#include <string>

#include "apps/compare/report_model.h"

namespace lockstep::test {

/// A report with every kind of chart, finding and oddity of numbers. `name` stands wherever a name
/// or a text of others can stand.
inline apps::CompareReport sample_report(const std::string& name) {
  using namespace apps;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();

  Chart curves{.title = "Validation loss " + name,
               .kind = ChartKind::line,
               .x = {"samples", "", Scale::linear},
               .y = {"loss", "nats", Scale::linear},
               .series = {{.name = "all-reduce"}, {.name = "top-k, no feedback"}, {.name = name}},
               .note = "Bands are 95 % intervals. " + name};
  for (int i = 1; i <= 30; ++i) {
    for (int s = 0; s < 3; ++s) {
      Series& series = curves.series[static_cast<size_t>(s)];
      const double y = 2 + 2.0 / i + 0.3 * s + (s == 1 && i > 20 ? 0.4 * (i % 2) : 0);
      series.x.push_back(100.0 * i);
      series.y.push_back(s == 2 && i == 12 ? nan : s == 2 && i > 27 ? inf : y);
      series.low.push_back(y - 0.05);
      series.high.push_back(y + 0.05);
    }
  }
  Chart steps{.title = "Training loss, every step",
              .kind = ChartKind::line,
              .x = {"step", "", Scale::log},
              .y = {"loss", "nats", Scale::log},
              .series = {{.name = "dense"}}};
  for (int i = 0; i <= 5000; ++i) {  // step 0 has no place on a log axis
    steps.series[0].x.push_back(i);
    steps.series[0].y.push_back(i == 3333 ? nan : 6 * std::pow(i + 1.0, -0.2) + 0.1 * (i % 7));
  }
  Chart ratio{.title = "What compression saves and costs",
              .kind = ChartKind::scatter,
              .x = {"wire ratio", "x", Scale::log},
              .y = {"gap", "nats", Scale::linear},
              .series = {{"top-k",
                          {10, 50, 100},
                          {0.01, 0.02, 0.2},
                          {0, 0.01, 0.1},
                          {0.02, 0.03, 0.3},
                          {"1 %", "0.2 %", name}},
                         {"int8", {4, 7.5}, {0.002, 0.05}, {}, {}, {"8 bits", "4 bits"}}},
              .front = Front::high_x_low_y};
  Chart zeros{
      .title = "Share of zeros",
      .kind = ChartKind::bar,
      .x = {"layer", "", Scale::linear},
      .y = {"zeros", "%", Scale::linear},
      .categories = {"embedding", "blocks.0.attention.projection", "head", name},
      .series = {{"before the cast", {}, {1, 2, 3, nan}, {0.5, 1, 2, 0}, {1.5, 3, 4, 0}, {}},
                 {"after", {}, {11, 22, 33, 4}, {}, {}, {}}}};
  Chart staleness{.title = "Staleness",
                  .kind = ChartKind::histogram,
                  .x = {"versions", "", Scale::linear},
                  .y = {"pushes", "", Scale::linear},
                  .series = {{.name = "worker"}}};
  for (int i = 0; i < 32; ++i) {
    staleness.categories.push_back(std::to_string(i));
    staleness.series[0].y.push_back(std::floor(400 * std::exp(-0.02 * (i - 15) * (i - 15))));
  }

  CompareReport report{
      .title = "What the documents claim, measured",
      .date = "2026-01-02T03:04:05Z",
      .command = "lockstep compare --quick --out " + name,
      .summary = "A preview: every claim ran for about twenty seconds. " + name,
      .machine = {{"processor", name}, {"cores", "2"}},
      .tables = {{"Four strategies",
                  {"convergence", "memory"},
                  {{"all-reduce",
                    {{"fast", "1.00 x, 0.98 to 1.02", Agreement::yes},
                     {"high", "1.4 x", Agreement::in_part}}},
                   {name, {{name, name, Agreement::no}, {"low", "", Agreement::unknown}}}}}},
      .contradictions = {{"In which type do gradients cross the wire?", "FP16", "FP32 " + name,
                          "A, where the gap stays below 0.02 nats.", "A2d"}}};
  report.claims.push_back(
      {.id = "A2d",
       .statement = "0.1 % kept is fine at first and oscillates later; error compensation mends it",
       .source = "document A, compression",
       .done = "Three optimisers, with and without feedback. " + name,
       .commands = {"lockstep compare --only A2d",
                    "lockstep train transformer --out '" + name + "'"},
       .rule = "Reproduced: index below 1.25 early and above 2 late.",
       .figures = {{"oscillation, early", "", 1.1, Interval{1.05, 1.15}, 5},
                   {"gap " + name, "nats", -0.0123456, Interval{-0.02, 0.01}, 5},
                   {"diverged", "nats", nan, {}, 1},
                   {"bytes", "B", 123456789, {}, 0}},
       .charts = {curves, steps},
       .verdict = {{Finding::not_reproduced, Provenance::measured, "1.10 early, 1.20 late " + name},
                   Judgement{Finding::inconclusive, Provenance::arithmetic, "two seeds"}},
       .takeaway = "Use error feedback. " + name});
  report.claims.push_back({.id = "A2b",
                           .statement = "codes keep what they promise " + name,
                           .charts = {ratio, zeros},
                           .verdict = {{Finding::in_part, Provenance::measured, ""}, {}}});
  report.claims.push_back({.id = "A3a",
                           .statement = "no waiting: higher utilisation",
                           .verdict = {{Finding::reproduced, Provenance::modelled, "2.3 x"}, {}}});
  report.claims.push_back(
      {.id = "A4d",
       .statement = "FP8 is native on some cards",
       .verdict = {{Finding::not_testable, Provenance::measured, "no card"}, {}}});
  report.claims.push_back({.id = "X1",
                           .statement = "local SGD",
                           .charts = {staleness},
                           .verdict = {{Finding::reproduced, Provenance::measured, ""}, {}},
                           .kind = ClaimSection::Kind::extension});
  return report;
}

}  // namespace lockstep::test
