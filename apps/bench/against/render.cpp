#include "apps/bench/against/table.h"

#include "apps/bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;

constexpr size_t kColumns = 6;
using Cells = std::array<std::string, kColumns>;

// Three digits that count.
std::string rounded(double value) {
  const double size = std::abs(value);
  if (value == 0) return "0";
  return fmt::format("{:.{}f}", value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

std::string side(const std::optional<double>& value, const std::string& unit,
                 const std::vector<double>& loss) {
  if (!value) return "–";
  std::string text = rounded(*value) + " " + unit;
  if (!loss.empty()) text += fmt::format(" ({:.3f})", median(loss));
  return text;
}

std::string mark_text(const Row& row, const std::vector<LimitLine>& limits) {
  if (!row.plan.mark) return "–";
  const Mark& mark = *row.plan.mark;
  const char* sign = mark.bound == Mark::Bound::at_least ? "≥" : "≤";
  std::string text = mark.value == 0              ? "0"
                     : mark.of == Mark::Of::ratio ? fmt::format("{} {}", sign, mark.value)
                     : mark.of == Mark::Of::share
                         ? fmt::format("{} {:.0f} % of the limit", sign, 100 * mark.value)
                         : fmt::format("{} {}", sign, mark.value);
  const auto met = row.met(limits);
  return text + (!met ? "" : *met ? ", met" : ", missed");
}

Cells heads() { return {"work", "Lockstep", "PyTorch", "ratio", "mark", "share of the limit"}; }

Cells cells(const Row& row, const std::vector<LimitLine>& limits) {
  const auto ratio = row.ratio(), share = row.share(limits);
  return {row.plan.what,
          side(row.our_median(), row.plan.unit, row.our_loss),
          side(row.peer_median(), row.plan.unit, row.peer_loss),
          ratio ? fmt::format("{:.2f}", *ratio) : "–",
          mark_text(row, limits),
          share ? fmt::format("{:.0f} %", 100 * *share) : "–"};
}

// Columns on a terminal: bytes that do not continue a character.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string row_of(const Cells& columns) {
  std::string text = "|";
  for (const std::string& cell : columns) text += " " + cell + " |";
  return text + "\n";
}

ordered_json or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

}  // namespace

std::string as_text(const Table& table) {
  std::string text;
  for (const std::string& line : table.heading) text += line + "\n";
  std::vector<Cells> rows{heads()};
  for (const Row& row : table.rows) rows.push_back(cells(row, table.limits));
  std::array<size_t, kColumns> widths{};
  for (const Cells& row : rows)
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], width(row[i]));
  text += "\n";
  for (const Cells& row : rows) {
    std::string line;
    for (size_t i = 0; i < kColumns; ++i)
      line += row[i] + std::string(i + 1 < kColumns ? widths[i] - width(row[i]) + 2 : 0, ' ');
    text += line + "\n";
  }
  text += "\nlimits of this machine\n";
  for (const LimitLine& limit : table.limits)
    text += fmt::format("  {} {}  {}\n", rounded(limit.value), limit.unit, limit.what);
  for (const std::string& note : table.notes) text += note + "\n";
  return text;
}

std::string as_markdown(const Table& table) {
  std::string text;
  for (const std::string& line : table.heading) text += line + "\n";
  text += fmt::format("\n{}|---|---|---|---|---|---|\n", row_of(heads()));
  for (const Row& row : table.rows) text += row_of(cells(row, table.limits));
  text += "\n| limit of this machine | measured |\n|---|---|\n";
  for (const LimitLine& limit : table.limits)
    text += fmt::format("| {} | {} {} |\n", limit.what, rounded(limit.value), limit.unit);
  if (!table.notes.empty()) text += "\n";
  for (const std::string& note : table.notes) text += note + "\n";
  return text;
}

ordered_json as_json(const Table& table) {
  ordered_json json = table.context;
  json["limits"] = ordered_json::array();
  for (const LimitLine& limit : table.limits)
    json["limits"].push_back(
        {{"name", limit.name}, {"what", limit.what}, {"value", limit.value}, {"unit", limit.unit}});
  json["rows"] = ordered_json::array();
  for (const Row& row : table.rows) {
    const auto met = row.met(table.limits);
    ordered_json line{
        {"name", row.plan.name},
        {"what", row.plan.what},
        {"unit", row.plan.unit},
        {"lockstep", or_null(row.our_median())},
        {"pytorch", or_null(row.peer_median())},
        {"ratio", or_null(row.ratio())},
        {"ratio_of", row.plan.ratio == RowPlan::Ratio::speed ? "speed" : "part"},
        {"mark", row.plan.mark ? ordered_json(mark_text(row, table.limits)) : nullptr},
        {"met", met ? ordered_json(*met) : ordered_json(nullptr)},
        {"share_of_limit", or_null(row.share(table.limits))},
        {"rounds", {{"lockstep", row.ours}, {"pytorch", row.peer}}}};
    if (row.plan.loss)
      line["validation_losses"] = {{"lockstep", row.our_loss}, {"pytorch", row.peer_loss}};
    json["rows"].push_back(std::move(line));
  }
  json["notes"] = table.notes;
  return json;
}

}  // namespace lockstep::apps
