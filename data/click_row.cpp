#include "data/click_row.h"

#include "data/category.h"

#include "core/check.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>

namespace lockstep::data {
namespace {

constexpr int64_t kLogs = 4096;
constexpr uint8_t kNoDigit = 0x80;

constexpr std::array<uint8_t, 256> kHex = [] {
  std::array<uint8_t, 256> digits{};
  digits.fill(kNoDigit);
  for (int i = 0; i < 10; ++i) digits['0' + i] = static_cast<uint8_t>(i);
  for (int i = 0; i < 6; ++i) digits['a' + i] = digits['A' + i] = static_cast<uint8_t>(10 + i);
  return digits;
}();
uint8_t hex(char c) { return kHex[static_cast<unsigned char>(c)]; }

bool ends_field(const char* at, const char* end, char separator) {
  return at == end || *at == separator;
}

// Where the field that begins at `at` ends.
const char* field_end(const char* at, const char* end, char separator) {
  const void* found = std::memchr(at, separator, static_cast<size_t>(end - at));
  return found != nullptr ? static_cast<const char*>(found) : end;
}

float log_of(double x) { return x > 0 ? static_cast<float>(std::log1p(x)) : 0.0f; }

}  // namespace

std::string ClickColumns::name(int64_t column) const {
  if (column < std::ssize(names)) return printable(names[column], 40);
  if (column == 0) return "label";
  return column <= dense ? fmt::format("I{}", column) : fmt::format("C{}", column - dense);
}

ClickRowParser::ClickRowParser(const ClickColumns& columns, std::vector<int64_t> table_rows,
                               Categories categories)
    : columns_(columns), table_rows_(std::move(table_rows)), categories_(categories) {
  check(static_cast<int64_t>(table_rows_.size()) == columns_.categories,
        "[data.click_row] tables; expected {}, one a column of categories, got {}",
        columns_.categories, table_rows_.size());
  for (int64_t x = 0; x < kLogs; ++x) logs_.push_back(log_of(static_cast<double>(x)));
}

// Both return where the field ends, or null. The byte at `end` is no digit and no separator (see
// Line), so loops over digits need not ask for it.
const char* ClickRowParser::parse_dense(const char* at, const char* end, float& to) const {
  if (ends_field(at, end, columns_.separator)) {
    to = 0;
    return at;
  }
  const char* digits = at + (*at == '-' ? 1 : 0);
  const char* p = digits;
  uint64_t x = 0;
  for (unsigned digit; (digit = static_cast<unsigned char>(*p) - unsigned{'0'}) < 10; ++p)
    x = 10 * x + digit;
  if (p > digits && p - digits <= 18) {
    if (*p == '.' && p[1] == '0') p += 2;  // 260.0
    if (ends_field(p, end, columns_.separator)) {
      to = digits > at ? 0.0f : x < kLogs ? logs_[x] : log_of(static_cast<double>(x));
      return p;
    }
  }
  const char* stop = field_end(at, end, columns_.separator);
  double value = 0;
  const auto [read, error] = std::from_chars(at, stop, value);
  if (error != std::errc() || read != stop || !std::isfinite(value)) return nullptr;
  to = log_of(value);
  return stop;
}

const char* ClickRowParser::parse_category(const char* at, const char* end, int64_t table,
                                           int32_t& row) const {
  const int64_t rows = table_rows_[table];
  if (categories_ == Categories::text) {
    const char* stop = field_end(at, end, columns_.separator);
    row = category_row({at, static_cast<size_t>(stop - at)}, rows);
    return stop;
  }
  if (ends_field(at, end, columns_.separator)) {
    row = 0;
    return at;
  }
  if (categories_ == Categories::rows) return parse_row(at, end, table, row);
  uint32_t number = 0;
  uint8_t all = 0;
  for (int i = 0; i < 8; ++i) {  // nearly always there are eight
    const uint8_t digit = hex(at[i]);
    all |= digit;
    number = number << 4 | (digit & 0xf);
  }
  const char* p = at + 8;
  if ((all & kNoDigit) != 0) {
    number = 0;
    for (p = at; hex(*p) != kNoDigit; ++p) number = number << 4 | hex(*p);
  }
  if (!ends_field(p, end, columns_.separator)) return nullptr;
  row = static_cast<int32_t>(number % static_cast<uint32_t>(rows));
  return p;
}

const char* ClickRowParser::parse_row(const char* at, const char* end, int64_t table,
                                      int32_t& row) const {
  const char* stop = field_end(at, end, columns_.separator);
  const auto [read, error] = std::from_chars(at, stop, row);  // beyond 32 bits is an error, too
  return error == std::errc() && read == stop && row >= 0 && row < table_rows_[table] ? stop
                                                                                      : nullptr;
}

bool ClickRowParser::parse(const Line& line, float& label, float* dense, int32_t* rows) const {
  if (!line.whole || line.begin == line.end) return false;
  const char *p = line.begin, *end = line.end;
  if (*p != '0' && *p != '1') return false;
  label = *p++ == '1' ? 1.0f : 0.0f;
  if (*p == '.' && p[1] == '0') p += 2;
  const auto separated = [&] { return p < end && *p++ == columns_.separator; };
  for (int64_t f = 0; f < columns_.dense; ++f)
    if (!separated() || (p = parse_dense(p, end, dense[f])) == nullptr) return false;
  for (int64_t t = 0; t < columns_.categories; ++t)
    if (!separated() || (p = parse_category(p, end, t, rows[t])) == nullptr) return false;
  return p == end;
}

std::string ClickRowParser::explain(const Line& line) const {
  if (!line.whole) return fmt::format("expected a line of at most {} bytes", kLongestLine);
  std::vector<const char*> ends;  // of its fields
  for (const char* p = line.begin;; ++p) {
    p = field_end(p, line.end, columns_.separator);
    ends.push_back(p);
    if (p == line.end) break;
  }
  const auto count = static_cast<int64_t>(ends.size());
  if (count != columns_.count())
    return fmt::format("expected {} columns, got {}", columns_.count(), count);
  float number;
  int32_t row;
  for (int64_t c = 0; c < count; ++c) {
    const char* begin = c == 0 ? line.begin : ends[c - 1] + 1;
    const std::string_view field(begin, static_cast<size_t>(ends[c] - begin));
    const bool fine = c == 0 ? field == "0" || field == "1" || field == "0.0" || field == "1.0"
                      : c <= columns_.dense
                          ? parse_dense(begin, line.end, number) == ends[c]
                          : parse_category(begin, line.end, c - 1 - columns_.dense, row) == ends[c];
    if (fine) continue;
    const int64_t table = c - 1 - columns_.dense;
    const std::string expected =
        c == 0      ? "0 or 1"
        : table < 0 ? "a number or nothing"
        : categories_ == Categories::rows
            ? fmt::format("a row 0..{} of table {} or nothing", table_rows_[table] - 1, table)
            : "up to 8 hexadecimal digits or nothing";
    const bool no_hex = table >= 0 && categories_ == Categories::hexadecimal;
    return fmt::format("column {} ({}): expected {}, got '{}'{}", c + 1, columns_.name(c), expected,
                       printable(field, 40), no_hex ? "; --categories text takes any" : "");
  }
  return "malformed";
}

}  // namespace lockstep::data
