#pragma once
#include "data/lines.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

/// Columns of a line of clicks: a label, dense features, categories.
struct ClickColumns {
  char separator = '\t';
  int64_t dense = 13, categories = 26;  ///< Criteo's
  std::vector<std::string> names;       ///< of all columns, where a header gave them
  int64_t count() const { return 1 + dense + categories; }
  /// "I2", or the header's name
  std::string name(int64_t column) const;
};

/// What stands in a column of categories; see Note [From categories to rows].
enum class Categories {
  hexadecimal,  ///< 1 … 8 hexadecimal digits
  text,         ///< anything, hashed
  rows,         ///< rows of the table as decimal numbers; one that it does not have is malformed
};

/// Reads lines of clicks. The label is 0 or 1. A dense feature is a number x, as an integer or with
/// a fraction and an exponent; the sample gets ln(1 + max(x, 0)), and 0 where the field is empty.
/// There is no quoting.
class ClickRowParser {
 public:
  ClickRowParser(const ClickColumns& columns, std::vector<int64_t> table_rows,
                 Categories categories);
  /// Writes a sample: dense [F], rows [T]. False for a malformed line, of which anything may have
  /// been written.
  bool parse(const Line& line, float& label, float* dense, int32_t* rows) const;
  /// Why parse() refuses the line: "expected 40 columns, got 39".
  std::string explain(const Line& line) const;

 private:
  const char* parse_dense(const char* at, const char* end, float& to) const;
  const char* parse_category(const char* at, const char* end, int64_t table, int32_t& row) const;
  const char* parse_row(const char* at, const char* end, int64_t table, int32_t& row) const;

  ClickColumns columns_;
  std::vector<int64_t> table_rows_;
  Categories categories_;
  std::vector<float> logs_;  // ln(1 + x) of small x
};

}  // namespace lockstep::data
