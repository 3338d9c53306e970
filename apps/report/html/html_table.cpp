#include "apps/report/html/html_table.h"

#include "apps/cli/parse.h"
#include "core/check.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep::apps {
namespace {

constexpr size_t kWide = 7;   // more columns do not fit on a sheet of paper
constexpr size_t kLong = 40;  // a longer text may have no place to break a line at

}  // namespace

HtmlTable::HtmlTable(HtmlWriter& html, std::string caption, std::vector<std::string> columns,
                     const std::function<void(HtmlTable&)>& rows)
    : html_(html), columns_(std::move(columns)) {
  html_.element("div", {{"class", "scroll"}}, [&] {
    const char* style = columns_.size() > kWide ? "sortable stack wide" : "sortable stack";
    html_.element("table", {{"class", style}, {"role", "table"}}, [&] {
      html_.element("caption", {}, caption);
      html_.element("thead", {{"role", "rowgroup"}}, [&] {
        html_.element("tr", {{"role", "row"}}, [&] {
          for (const std::string& column : columns_)
            html_.element("th", {{"scope", "col"}, {"role", "columnheader"}}, column);
        });
      });
      html_.element("tbody", {{"role", "rowgroup"}}, [&] { rows(*this); });
    });
  });
}

void HtmlTable::row(const Inside& cells) {
  column_ = 0;
  html_.element("tr", {{"role", "row"}}, cells);
  check(column_ == columns_.size(), "[apps.html_table] expected {} cells in a row, got {}",
        columns_.size(), column_);
}

void HtmlTable::cell(const Inside& inside, const std::string& key) { cell("", inside, key); }

void HtmlTable::cell(const std::string& text, const std::string& key) {
  cell(
      text.size() > kLong ? "long" : "", [&] { html_.text(text); }, key);
}

// Texts may differ in their attributes but not in their elements.
void HtmlTable::cell(const char* style, const Inside& inside, const std::string& key) {
  check(column_ < columns_.size(), "[apps.html_table] expected {} cells in a row, got more",
        columns_.size());
  const std::string& column = columns_[column_++];
  if (column_ == 1)
    html_.element("th",
                  {{"scope", "row"}, {"role", "rowheader"}, {"class", style}, {"data-key", key}},
                  inside);
  else
    html_.element("td",
                  {{"role", "cell"}, {"class", style}, {"data-column", column}, {"data-key", key}},
                  inside);
}

void HtmlTable::number(double value, const std::string& unit) {
  const std::string text =
      figure_text(value) + (unit.empty() || !std::isfinite(value) ? "" : " " + unit);
  cell(
      [&] {
        html_.element("span", {{"class", "number"}}, text);
      },
      std::isnan(value) ? "" : number_text(value));
}

std::string figure_text(double value) {
  if (std::isnan(value)) return "not a number";
  if (std::isinf(value)) return value > 0 ? "infinite" : "-infinite";
  const double size = std::fabs(value);
  if (size == 0) return "0";
  if (size >= 1e7 || size < 1e-4) return fmt::format("{:.3g}", value);
  if (size >= 1000) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}

}  // namespace lockstep::apps
