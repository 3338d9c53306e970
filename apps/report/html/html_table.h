#pragma once
#include <functional>
#include <string>
#include <vector>

#include "apps/report/html/html_writer.h"

namespace lockstep::apps {

/// A table that readers may sort by a column. On a narrow screen its rows become blocks, each cell
/// under its column's name; roles are spelled out since that way of display takes them away.
class HtmlTable {
 public:
  using Inside = std::function<void()>;

  /// Writes it: `rows` calls row() on the table for each.
  HtmlTable(HtmlWriter& html, std::string caption, std::vector<std::string> columns,
            const std::function<void(HtmlTable&)>& rows);

  void row(const Inside& cells);
  /// The next cell of a row; the first is the row's name. `key` is what it is sorted by instead of
  /// its text; keys of a column that are all numbers are sorted as numbers.
  void cell(const Inside& inside, const std::string& key = "");
  void cell(const std::string& text, const std::string& key = "");
  void number(double value, const std::string& unit = "");

 private:
  void cell(const char* style, const Inside& inside, const std::string& key);
  HtmlWriter& html_;
  const std::vector<std::string> columns_;
  size_t column_ = 0;
};

/// A number for people, four digits that count: "0.03429", "1.2e-05", "not a number", "infinite";
/// the same under every locale.
std::string figure_text(double value);

}  // namespace lockstep::apps
