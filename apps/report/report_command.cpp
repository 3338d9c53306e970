#include "apps/cli/console.h"
#include "apps/cli/exit_code.h"
#include "apps/commands.h"
#include "apps/report/curves.h"
#include "apps/report/progress.h"
#include "apps/report/run_files.h"
#include "apps/training/precision_options.h"
#include "core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace lockstep::apps {
namespace {

using nlohmann::json;

constexpr size_t kLabel = 26, kNarrowest = 12, kWidest = 28, kCurvePoints = 8;

std::string number_cell(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

std::string config_word(const RunFiles& run, const std::string& key) {
  const json config = run.run.value("config", json::object());
  if (!config.is_object() || !config.contains(key)) return "?";
  return config[key].is_string() ? config[key].get<std::string>() : config[key].dump();
}

// The name of --precision, with a + where knobs were set apart.
std::string precision_of(const RunFiles& run) {
  const std::string name = config_word(run, "precision");
  if (!PrecisionOptions::is_name(name)) return "?";
  const PrecisionOptions preset = PrecisionOptions::named(name);
  const auto differs = [&](const char* key, const std::string& expected) {
    return config_word(run, key) != expected;
  };
  const bool apart =
      differs("compute", preset.compute) || differs("params", preset.params) ||
      differs("grads", preset.grads) || differs("wire", preset.wire) ||
      differs("reduce_in", preset.reduce_in) || differs("divide", preset.divide) ||
      differs("master", preset.master ? "on" : "off") || differs("scale", preset.scale) ||
      differs("accumulate_in", config_word(run, "accumulate") == "1" ? "grads" : "fp32");
  return apart ? name + " +" : name;
}

// The strategy, and what a run that diverged went on with.
std::string sync_of(const RunFiles& run) {
  std::string text = config_word(run, "sync");
  if (const auto fallbacks = run.summary.find("fallbacks"); fallbacks != run.summary.end())
    for (const json& fallback : *fallbacks)
      if (fallback.is_object()) text += " > " + fallback.value("sync", "?");
  return text;
}

// What --compress says, as much of it as fits a column; "" where nothing is compressed.
std::string compression_of(const RunFiles& run) {
  const std::string spec = config_word(run, "compress");
  if (spec == "?") return "";
  return spec.size() <= kWidest ? spec : spec.substr(0, kWidest - 2) + "..";
}

// How many times fewer bytes gradients take: what the codes' exchange counted, or the strategy that
// has a code of its own.
double times_less(const RunFiles& run) {
  for (const auto& [part, key] :
       {std::pair{"compression", "effective_ratio"}, std::pair{"sync", "compression"}})
    if (const auto told = run.summary.find(part);
        told != run.summary.end() && told->is_object() && told->contains(key))
      return number_in(*told, key);
  return NAN;
}

class Table {
 public:
  explicit Table(const std::vector<RunFiles>& runs)
      : runs_(runs), widths_(runs.size(), kNarrowest) {}
  void row(const std::string& label, const std::function<std::string(const RunFiles&)>& cell) {
    Row& row = rows_.emplace_back(Row{label, {}});
    for (size_t i = 0; i < runs_.size(); ++i) {
      row.cells.push_back(cell(runs_[i]));
      widths_[i] = std::max(widths_[i], row.cells[i].size());
    }
  }
  void number(const std::string& label, const std::string& key, double unit, int digits) {
    row(label, [&](const RunFiles& run) {
      return number_cell(number_in(run.summary, key) / unit, digits);
    });
  }
  /// What is told of embedding tables; no line where no run tells it.
  void of_tables(const std::string& label, const std::string& key, double unit, int digits) {
    const auto value = [&](const RunFiles& run) {
      const auto tables = run.summary.find("tables");
      return tables != run.summary.end() && tables->is_object() ? number_in(*tables, key) / unit
                                                                : NAN;
    };
    if (std::ranges::any_of(runs_, [&](const RunFiles& run) { return std::isfinite(value(run)); }))
      row(label, [&](const RunFiles& run) { return number_cell(value(run), digits); });
  }
  std::string text() const {
    std::string text;
    for (const Row& row : rows_) {
      text += fmt::format("{:<{}}", row.label, kLabel);
      for (size_t i = 0; i < widths_.size(); ++i)
        text += fmt::format("  {:>{}}", row.cells[i], widths_[i]);
      text += "\n";
    }
    return text;
  }

 private:
  struct Row {
    std::string label;
    std::vector<std::string> cells;
  };
  const std::vector<RunFiles>& runs_;
  std::vector<size_t> widths_;  // as the longest cell
  std::vector<Row> rows_;
};

std::string table_of(const std::vector<RunFiles>& runs) {
  Table table(runs);
  table.row("", [](const RunFiles& run) { return run.name; });
  table.row("ranks x micro x batch", [](const RunFiles& run) {
    return fmt::format("{} x {} x {}", config_word(run, "ranks"), config_word(run, "accumulate"),
                       config_word(run, "batch"));
  });
  table.row("sync", sync_of);
  if (std::ranges::any_of(runs, [](const RunFiles& run) { return !compression_of(run).empty(); }))
    table.row("compression", [](const RunFiles& run) {
      const std::string spec = compression_of(run);
      return spec.empty() ? "-" : spec;
    });
  table.row("precision", precision_of);
  size_t steps = 0;
  for (const RunFiles& run : runs) steps = std::max(steps, run.loss.size());
  size_t shown = 0;
  for (size_t k = 0; k < kCurvePoints && steps > 0; ++k) {
    const size_t step = 1 + k * (steps - 1) / (kCurvePoints - 1);
    if (step == shown) continue;
    shown = step;
    table.row(fmt::format("loss at step {}", step), [&](const RunFiles& run) {
      return step <= run.loss.size() ? number_cell(run.loss[step - 1], 5) : std::string("-");
    });
  }
  table.number("validation loss", "val_loss", 1, 5);
  // Some runs have tokens, some clicks.
  const auto any_has = [&](const char* key) {
    return std::ranges::any_of(
        runs, [&](const RunFiles& run) { return std::isfinite(number_in(run.summary, key)); });
  };
  if (any_has("val_accuracy")) table.number("next-token accuracy, %", "val_accuracy", 0.01, 2);
  if (any_has("auc")) table.number("AUC", "auc", 1, 4);
  table.number("steps skipped", "skipped_steps", 1, 0);
  // Under --backend virtual they are this machine's own, unlike the times below.
  const std::string whose = any_has("virtual_s") ? " (not modelled)" : "";
  if (any_has("tokens_per_s")) table.number("tokens/s" + whose, "tokens_per_s", 1, 0);
  if (any_has("auc")) table.number("samples/s" + whose, "samples_per_s", 1, 0);
  table.number("all-reduce calls", "all_reduce_calls", 1, 0);
  table.number("MB on the wire, a rank", "wire_bytes", 1e6, 1);
  if (std::ranges::any_of(runs, [](const RunFiles& run) { return std::isfinite(times_less(run)); }))
    table.row("bytes of gradients, less", [](const RunFiles& run) {
      const double times = times_less(run);
      return std::isfinite(times) ? fmt::format("{:.1f} x", times) : std::string("-");
    });
  table.of_tables("kB of rows a step, a rank", "unique_row_bytes", 1e3, 0);
  table.of_tables("row updates colliding, %", "collision_rate", 0.01, 1);
  table.number("exposed communication, s", "exposed_comm_s", 1, 2);
  if (any_has("virtual_s")) {
    table.number("modelled time, s", "virtual_s", 1, 3);
    table.row("modelled computing, %", [](const RunFiles& run) {
      double least = NAN;  // the rank that waits most
      if (const auto ranks = run.summary.find("ranks");
          ranks != run.summary.end() && ranks->is_array())
        for (const json& rank : *ranks) least = std::fmin(least, number_in(rank, "utilisation"));
      return number_cell(100 * least, 0);
    });
  }
  table.number("peak memory, MB", "peak_memory_bytes", 1e6, 0);
  table.row("whole run",
            [](const RunFiles& run) { return duration_text(number_in(run.summary, "wall_s")); });
  return table.text();
}

class Report final : public Command {
 public:
  Report() : Command("report", "put runs side by side: loss curves, speed, communication, memory") {
    options_.group("what");
    options_.positional(directories_, "DIR...", "directories of runs");
  }
  std::vector<std::string> examples() const override {
    return {"report runs/a", "report runs/a runs/b runs/c", "report runs/demo/*/"};
  }

  int run() override {
    check(!directories_.empty(), "report: expected run directories, got none");
    check(directories_.size() <= 16, "report: expected at most 16 run directories, got {}",
          directories_.size());
    std::vector<RunFiles> runs;
    std::vector<Curve> curves;
    std::string legend;
    for (const std::string& directory : directories_) {
      runs.push_back(read_run(directory));
      curves.push_back({static_cast<char>('a' + curves.size()), runs.back().loss});
      legend +=
          fmt::format("{}{} {}", legend.empty() ? "" : "   ", curves.back().mark, runs.back().name);
    }
    std::string text = table_of(runs);
    if (runs.size() > 1) {
      text += fmt::format("{:<{}}  {:.2g} over all steps and pairs of runs\n",
                          "curves differ by at most", kLabel, largest_difference(curves));
      legend += "   * several";
    }
    print(text + "\ntraining loss   " + legend + "\n" + draw_curves(curves, 72, 13));
    return kOk;
  }

 private:
  std::vector<std::string> directories_;
};

}  // namespace

std::unique_ptr<Command> report_command() { return std::make_unique<Report>(); }

}  // namespace lockstep::apps
