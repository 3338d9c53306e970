#include "data/click_file.h"

#include "core/check.h"
#include "core/parallel.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace lockstep::data {
namespace {

constexpr int64_t kGrain = 256;                    // lines worth a thread
constexpr int64_t kFirstBytes = int64_t{1} << 16;  // that show what a file is

std::vector<std::string> split(std::string_view line, char separator) {
  std::vector<std::string> fields;
  for (;;) {
    const size_t at = line.find(separator);
    fields.emplace_back(line.substr(0, at));
    if (at == std::string_view::npos) return fields;
    line.remove_prefix(at + 1);
  }
}

// label, I…, C…
ClickColumns columns_of_header(const File& file, std::string_view header, char separator) {
  ClickColumns columns{separator, 0, 0, split(header, separator)};
  for (size_t c = 1; c < columns.names.size(); ++c) {
    const char kind = columns.names[c].empty() ? '\0' : columns.names[c][0];
    if (kind == 'I' && columns.categories == 0)
      ++columns.dense;
    else if (kind == 'C')
      ++columns.categories;
    else
      columns.categories = INT64_MIN / 2;  // out of order
  }
  if (columns.names[0] != "label" || columns.categories < 1)
    throw SystemError(Fault::file,
                      fmt::format("[data.clicks] {}, line 1: expected a header label,I1,…,C1,… or "
                                  "a row that begins with 0 or 1, got '{}'",
                                  printable(file.path()), printable(header, 60)));
  return columns;
}

// The first line alone might be a malformed one.
char usual_separator(const File& file, int64_t begin) {
  std::vector<char> buffer;
  LineReader reader(file, begin, std::min(file.size(), begin + kFirstBytes), buffer);
  int64_t tabs = 0, commas = 0;
  for (Line line; reader.next(line);) {
    tabs += std::ranges::count(line.text(), '\t');
    commas += std::ranges::count(line.text(), ',');
  }
  return tabs > 0 && tabs >= commas ? '\t' : ',';
}

}  // namespace

ClickFileHead read_click_head(const File& file) {
  ClickFileHead head{.first_byte = data_begin(file)};
  std::vector<char> buffer;
  LineReader reader(file, head.first_byte, file.size(), buffer);
  Line line;
  if (!reader.next(line))
    throw SystemError(Fault::file, fmt::format("[data.clicks] {} is empty; expected rows of clicks",
                                               printable(file.path())));
  head.columns.separator = usual_separator(file, head.first_byte);
  const std::string_view text = line.text();
  if (text.empty() || !line.whole || std::isalpha(static_cast<unsigned char>(text[0])) == 0)
    return head;
  head.columns = columns_of_header(file, text, head.columns.separator);
  head.header_lines = 1;
  // Its line end is one byte or two, or missing.
  const auto length = static_cast<int64_t>(text.size());
  char ends[2] = {};
  const int64_t there = std::min<int64_t>(2, file.size() - head.first_byte - length);
  file.read_at(head.first_byte + length, ends, there);
  head.first_byte += length + (ends[0] == '\r' ? 2 : there > 0 ? 1 : 0);
  return head;
}

ClickFile::ClickFile(const Options& options)
    : file_(options.path, File::Mode::read),
      head_(read_click_head(file_)),
      bad_rows_(options.path, options.bad_rows) {
  check(options.held_out >= 0 && options.held_out < 1,
        "[data.clicks] held-out share; expected 0 <= share < 1, got {}", options.held_out);
  schema_ = {.dense = head_.columns.dense,
             .table_rows = std::vector<int64_t>(head_.columns.categories, options.hash_rows)};
  schema_.check_sizes();
  parser_ = std::make_unique<ClickRowParser>(head_.columns, schema_.table_rows, options.categories);
  const int64_t bytes = file_.size();
  index_ = std::make_unique<LineIndex>(file_, head_.first_byte, [&](int64_t done) {
    if (options.progress) options.progress(done, bytes);
  });
  held_out_ = static_cast<int64_t>(options.held_out * static_cast<double>(index_->lines()));
  if (samples() < 1)
    throw SystemError(Fault::file, fmt::format("[data.clicks] {} has no rows; expected at least 1",
                                               printable(options.path)));
  if (options.bad_rows == BadRows::skip) check_beginning();
}

// Where rows are skipped, a file of something else would be skipped as a whole.
void ClickFile::check_beginning() const {
  std::vector<char> buffer;
  LineReader reader(file_, head_.first_byte, std::min(file_.size(), head_.first_byte + kFirstBytes),
                    buffer);
  std::vector<float> dense(schema_.dense);
  std::vector<int32_t> rows(schema_.tables());
  std::string first;
  float label;
  for (Line line; reader.next(line);) {
    if (parser_->parse(line, label, dense.data(), rows.data())) return;
    if (first.empty()) first = parser_->explain(line);
  }
  throw SystemError(
      Fault::file,
      fmt::format("[data.clicks] {}: all of the first lines are malformed; line {}: {}",
                  printable(file_.path()), 1 + head_.header_lines, first));
}

// Runs of consecutive lines are read at once.
void ClickFile::read(std::span<const int64_t> samples, std::vector<char>& buffer, Rows to) const {
  for (size_t i = 0; i < samples.size();) {
    size_t end = i + 1;
    while (end < samples.size() && samples[end] == samples[end - 1] + 1) ++end;
    const LineIndex::Place place = index_->before(samples[i]);
    LineReader reader(file_, place.offset, index_->offset_after(samples[end - 1] + 1), buffer);
    int64_t number = place.line;
    for (Line line; i < end; ++number) {
      if (!reader.next(line))
        throw SystemError(Fault::file, fmt::format("[data.clicks] {} changed while it was read",
                                                   printable(file_.path())));
      if (number < samples[i]) continue;
      const bool valid = parser_->parse(line, to.labels[i], to.dense + i * schema_.dense,
                                        to.rows + i * schema_.tables());
      to.valid[i++] = valid ? 1 : 0;
      if (!valid) bad_rows_.add(number + 1 + head_.header_lines, parser_->explain(line));
    }
  }
}

void ClickFile::fill(std::span<const int64_t> samples, ClickBuffer& to) const {
  const auto n = static_cast<int64_t>(samples.size());
  const int64_t tables = schema_.tables(), dense = schema_.dense;
  for (const int64_t sample : samples)
    check(sample >= 0 && sample < index_->lines(), "[data.clicks] sample; expected 0..{}, got {}",
          index_->lines() - 1, sample);
  const ClickBatch& whole = to.resize(n, n * tables);
  if (n == 0) return;
  to.scratch_rows.resize(to.most_samples() * tables);
  to.scratch_valid.resize(to.most_samples());
  to.scratch_text.resize(std::max<size_t>(to.scratch_text.size(), parallel_pieces(n, kGrain)));
  const Rows rows{whole.labels.mutable_data<float>(),
                  dense > 0 ? whole.dense.mutable_data<float>() : nullptr, to.scratch_rows.data(),
                  to.scratch_valid.data()};
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end, int piece) {
    read(samples.subspan(begin, end - begin), to.scratch_text[piece],
         {rows.labels + begin, rows.dense + begin * dense, rows.rows + begin * tables,
          rows.valid + begin});
  });
  int64_t valid = 0;  // malformed ones are closed up
  for (int64_t b = 0; b < n; ++b) {
    if (rows.valid[b] == 0) continue;
    if (valid < b) {
      rows.labels[valid] = rows.labels[b];
      if (dense > 0) std::memcpy(rows.dense + valid * dense, rows.dense + b * dense, dense * 4);
      std::memcpy(rows.rows + valid * tables, rows.rows + b * tables, tables * 4);
    }
    ++valid;
  }
  int32_t* out = to.resize(valid, valid * tables).rows.mutable_data<int32_t>();
  constexpr int64_t kTile = 16;  // samples: a cache line of every table
  for (int64_t b = 0; b < valid; b += kTile)
    for (int64_t t = 0; t < tables; ++t)
      for (int64_t i = b; i < std::min(b + kTile, valid); ++i)
        out[t * valid + i] = rows.rows[i * tables + t];
}

}  // namespace lockstep::data
