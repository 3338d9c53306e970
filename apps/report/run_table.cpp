#include "apps/report/run_table.h"

#include "apps/report/progress.h"
#include "apps/training/precision_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace lockstep::apps {
namespace {

using nlohmann::json;

constexpr size_t kNarrowest = 12, kWidest = 28, kCurvePoints = 8;

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

class Builder {
 public:
  explicit Builder(const std::vector<RunFiles>& runs) : runs_(runs) {}
  /// Cells in words.
  void row(const std::string& label, const std::function<std::string(const RunFiles&)>& cell) {
    RunTable::Row& row =
        table_.rows.emplace_back(RunTable::Row{.label = label, .cells = {}, .values = {}});
    for (const RunFiles& run : runs_) {
      row.cells.push_back(cell(run));
      row.values.push_back(NAN);
    }
  }
  /// Cells that are numbers in `unit`, with that many digits; "4.0 x" where they have a suffix.
  void numbers(const std::string& label, int digits,
               const std::function<double(const RunFiles&)>& value, const char* suffix = "") {
    RunTable::Row& row =
        table_.rows.emplace_back(RunTable::Row{.label = label, .cells = {}, .values = {}});
    for (const RunFiles& run : runs_) {
      row.values.push_back(value(run));
      row.cells.push_back(number_cell(row.values.back(), digits));
      if (std::isfinite(row.values.back())) row.cells.back() += suffix;
    }
  }
  void number(const std::string& label, const std::string& key, double unit, int digits) {
    numbers(label, digits, [&](const RunFiles& run) { return number_in(run.summary, key) / unit; });
  }
  /// What is told of embedding tables; no line where no run tells it.
  void of_tables(const std::string& label, const std::string& key, double unit, int digits) {
    const auto value = [&](const RunFiles& run) {
      const auto tables = run.summary.find("tables");
      return tables != run.summary.end() && tables->is_object() ? number_in(*tables, key) / unit
                                                                : NAN;
    };
    if (std::ranges::any_of(runs_, [&](const RunFiles& run) { return std::isfinite(value(run)); }))
      numbers(label, digits, value);
  }
  RunTable::Row& last() { return table_.rows.back(); }
  RunTable take() { return std::move(table_); }

 private:
  const std::vector<RunFiles>& runs_;
  RunTable table_;
};

}  // namespace

RunTable tabulate(const std::vector<RunFiles>& runs) {
  Builder table(runs);
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
    table.numbers(fmt::format("loss at step {}", step), 5, [&](const RunFiles& run) {
      return step <= run.loss.size() ? run.loss[step - 1] : NAN;
    });
    table.last().of = RunTable::Row::Of::curve;
  }
  table.number("validation loss", "val_loss", 1, 5);
  // Some runs have tokens, some clicks.
  const auto any_has = [&](const char* key) {
    return std::ranges::any_of(
        runs, [&](const RunFiles& run) { return std::isfinite(number_in(run.summary, key)); });
  };
  if (any_has("val_accuracy")) table.number("held-out accuracy, %", "val_accuracy", 0.01, 2);
  if (any_has("auc")) table.number("AUC", "auc", 1, 4);
  table.number("steps skipped", "skipped_steps", 1, 0);
  // Under --backend virtual they are this machine's own, unlike the times below.
  const std::string whose = any_has("virtual_s") ? " (not modelled)" : "";
  if (any_has("tokens_per_s")) table.number("tokens/s" + whose, "tokens_per_s", 1, 0);
  if (any_has("auc")) table.number("samples/s" + whose, "samples_per_s", 1, 0);
  table.number("all-reduce calls", "all_reduce_calls", 1, 0);
  table.number("MB on the wire, a rank", "wire_bytes", 1e6, 1);
  if (std::ranges::any_of(runs, [](const RunFiles& run) { return std::isfinite(times_less(run)); }))
    table.numbers("bytes of gradients, less", 1, times_less, " x");
  table.of_tables("kB of rows a step, a rank", "unique_row_bytes", 1e3, 0);
  table.of_tables("row updates colliding, %", "collision_rate", 0.01, 1);
  table.number("exposed communication, s", "exposed_comm_s", 1, 2);
  if (any_has("virtual_s")) {
    table.number("modelled time, s", "virtual_s", 1, 3);
    table.numbers("modelled computing, %", 0, [](const RunFiles& run) {
      double least = NAN;  // the rank that waits most
      if (const auto ranks = run.summary.find("ranks");
          ranks != run.summary.end() && ranks->is_array())
        for (const json& rank : *ranks) least = std::fmin(least, number_in(rank, "utilisation"));
      return 100 * least;
    });
  }
  table.number("peak memory, MB", "peak_memory_bytes", 1e6, 0);
  table.row("whole run",
            [](const RunFiles& run) { return duration_text(number_in(run.summary, "wall_s")); });
  for (size_t i = 0; i < runs.size(); ++i)
    table.last().values[i] = number_in(runs[i].summary, "wall_s");
  return table.take();
}

std::string text_of(const RunTable& table, const std::vector<RunFiles>& runs) {
  std::vector<size_t> widths;  // as the longest cell
  for (const RunFiles& run : runs) widths.push_back(std::max(kNarrowest, run.name.size()));
  for (const RunTable::Row& row : table.rows)
    for (size_t i = 0; i < runs.size(); ++i) widths[i] = std::max(widths[i], row.cells[i].size());
  std::string text = fmt::format("{:<{}}", "", kRunTableLabel);
  for (size_t i = 0; i < runs.size(); ++i) text += fmt::format("  {:>{}}", runs[i].name, widths[i]);
  text += "\n";
  for (const RunTable::Row& row : table.rows) {
    text += fmt::format("{:<{}}", row.label, kRunTableLabel);
    for (size_t i = 0; i < runs.size(); ++i)
      text += fmt::format("  {:>{}}", row.cells[i], widths[i]);
    text += "\n";
  }
  return text;
}

}  // namespace lockstep::apps
