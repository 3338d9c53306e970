#include "apps/report/run_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace lockstep::apps {
namespace {

using nlohmann::json;

// What a curve may be drawn against: where a run stands after a step.
struct Progression {
  const char* title;
  const char* unit;
  double scale;  // of the unit
  const char* field;
  enum class Kind { as_it_is, summed } kind;
};
constexpr std::array<Progression, 5> kProgressions{{
    {"step", "", 1, "step", Progression::Kind::as_it_is},
    {"samples", "", 1, "samples", Progression::Kind::summed},
    {"bytes on the wire, a rank", "MB", 1e6, "wire_bytes", Progression::Kind::summed},
    {"time without evaluation", "s", 1, "time_s", Progression::Kind::summed},
    {"modelled time", "s", 1, "virtual_s", Progression::Kind::as_it_is},
}};

struct Measured {
  const char* field;
  const char* heading;
  const char* title;  // of the axis
  const char* unit;
  double scale;
};
constexpr Measured kTraining{"loss", "Training loss", "loss", "nats", 1};
constexpr Measured kValidation{"val_loss", "Validation loss", "loss", "nats", 1};
constexpr std::array<Measured, 2> kQualities{
    {{"val_accuracy", "Accuracy", "accuracy", "%", 0.01}, {"auc", "AUC", "AUC", "", 1}}};

// A value of a run and where it stood then.
struct Reading {
  std::array<double, kProgressions.size()> at;
  double value;
};
using Readings = std::vector<Reading>;

// The readings of each measured field, in one pass over the file.
template <size_t N>
std::array<Readings, N> read(const RunFiles& run, const std::array<Measured, N>& fields) {
  std::array<Readings, N> all;
  std::array<double, kProgressions.size()> at{};
  for_each_step(run.directory, [&](const json& step) {
    for (size_t i = 0; i < at.size(); ++i) {
      const Progression& p = kProgressions[i];
      const double value = number_in(step, p.field) / p.scale;
      at[i] = p.kind == Progression::Kind::summed ? at[i] + value : value;
    }
    for (size_t i = 0; i < N; ++i)
      if (step.contains(fields[i].field))  // null: not finite, a gap of the curve
        all[i].push_back({at, number_in(step, fields[i].field) / fields[i].scale});
  });
  return all;
}

Chart chart_of(const std::vector<RunFiles>& runs, const std::vector<Readings>& readings,
               const Measured& measured, size_t progression) {
  const Progression& p = kProgressions[progression];
  Chart chart{.title = fmt::format("{} against {}", measured.heading, p.title),
              .kind = ChartKind::line,
              .x = {p.title, p.unit, Scale::linear},
              .y = {measured.title, measured.unit, Scale::linear}};
  for (size_t r = 0; r < runs.size(); ++r) {
    Series series{.name = runs[r].name};
    for (const Reading& reading : readings[r]) {
      if (std::isnan(reading.at[progression])) continue;  // the run has no such time
      series.x.push_back(reading.at[progression]);
      series.y.push_back(reading.value);
    }
    chart.series.push_back(
        std::move(series));  // an empty one, too: a run has one colour everywhere
  }
  return chart;
}

// How old the gradients were, where somebody counted.
void add_staleness(std::vector<Chart>& charts, const std::vector<RunFiles>& runs) {
  Chart chart{.title = "Staleness of the gradients that were applied",
              .kind = ChartKind::histogram,
              .x = {"versions behind"},
              .y = {"gradients"}};
  for (const RunFiles& run : runs) {
    const json::json_pointer path("/sync/histograms/staleness");
    Series& series = chart.series.emplace_back(Series{.name = run.name});
    if (!run.summary.contains(path) || !run.summary[path].is_array()) continue;
    for (const json& count : run.summary[path])
      series.y.push_back(count.is_number() ? count.get<double>() : NAN);
  }
  size_t bins = 0;
  for (const Series& series : chart.series) bins = std::max(bins, series.y.size());
  if (bins == 0) return;
  for (size_t i = 0; i < bins; ++i) chart.categories.push_back(std::to_string(i));
  for (Series& series : chart.series)
    if (!series.y.empty()) series.y.resize(bins, 0);
  charts.push_back(std::move(chart));
}

}  // namespace

RunCharts chart_runs(const std::vector<RunFiles>& runs) {
  constexpr std::array fields{kTraining, kValidation, kQualities[0], kQualities[1]};
  std::array<std::vector<Readings>, fields.size()> readings;
  for (const RunFiles& run : runs) {
    auto all = read(run, fields);
    for (size_t i = 0; i < fields.size(); ++i) readings[i].push_back(std::move(all[i]));
  }
  RunCharts charts;
  const auto add = [&](std::vector<Chart>& to, size_t field, size_t progression) {
    Chart chart = chart_of(runs, readings[field], fields[field], progression);
    if (std::ranges::any_of(chart.series, [](const Series& s) { return !s.y.empty(); }))
      to.push_back(std::move(chart));
  };
  for (size_t p = 0; p < kProgressions.size(); ++p) {
    add(charts.training, 0, p);
    add(charts.validation, 1, p);
  }
  add(charts.others, 2, 1);
  add(charts.others, 3, 1);
  add_staleness(charts.others, runs);
  return charts;
}

}  // namespace lockstep::apps
