#include "data/inspect.h"

#include "data/cardinality.h"
#include "data/category.h"
#include "data/click_file.h"
#include "data/interactions.h"
#include "data/lines.h"

#include "core/check.h"
#include "core/parallel.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>

namespace lockstep::data {
namespace {

constexpr int64_t kChunk = int64_t{1} << 22;       // of a piece
constexpr int64_t kFirstBytes = int64_t{1} << 16;  // in which the kind is looked for
constexpr size_t kReported = 5;

struct BadLine {
  int64_t line;
  std::string reason;
};

// What one thread has seen.
struct Seen {
  int64_t lines = 0, samples = 0, positives = 0, longest = 0, bad = 0;
  std::vector<int64_t> missing;
  std::vector<Cardinality> distinct;
  // Of the chunk at hand, which does not know how many lines are before it.
  int64_t chunk_lines = 0;
  std::vector<BadLine> chunk_bad;
  std::vector<char> buffer;

  explicit Seen(size_t columns = 0) : missing(columns), distinct(columns) {}
  void field(size_t column, std::string_view text) {
    if (text.empty())
      ++missing[column];
    else
      distinct[column].add(category_hash(text));
  }
  // `reason` is asked for the first few only: a file may be bad from its beginning to its end.
  template <class Reason>
  void bad_line(Reason reason) {
    ++bad;
    if (chunk_bad.size() < kReported) chunk_bad.push_back({chunk_lines, reason()});
  }
};

// Looks at the lines of one kind of file; any number of threads at once.
class Inspector {
 public:
  virtual ~Inspector() = default;
  virtual std::vector<std::string> columns() const = 0;
  virtual void look(const Line& line, Seen& seen) const = 0;
};

class ClickInspector final : public Inspector {
 public:
  ClickInspector(const ClickColumns& columns, Categories categories)
      : columns_(columns),
        parser_(columns, std::vector<int64_t>(columns.categories, INT32_MAX), categories) {}
  std::vector<std::string> columns() const override {
    std::vector<std::string> names;
    for (int64_t c = 1; c < columns_.count(); ++c) names.push_back(columns_.name(c));
    return names;
  }
  void look(const Line& line, Seen& seen) const override {
    thread_local std::vector<float> dense;
    thread_local std::vector<int32_t> rows;
    dense.resize(std::max<int64_t>(columns_.dense, 1));
    rows.resize(columns_.categories);
    float label = 0;
    if (!parser_.parse(line, label, dense.data(), rows.data()))
      return seen.bad_line([&] { return parser_.explain(line); });
    ++seen.samples;
    seen.positives += label == 1 ? 1 : 0;
    std::string_view rest = line.text();
    rest.remove_prefix(rest.find(columns_.separator) + 1);
    for (size_t c = 0;; ++c) {
      const size_t end = rest.find(columns_.separator);
      seen.field(c, rest.substr(0, end));
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
    }
  }

 private:
  ClickColumns columns_;
  ClickRowParser parser_;
};

class InteractionInspector final : public Inspector {
 public:
  std::vector<std::string> columns() const override { return {"user", "item"}; }
  void look(const Line& line, Seen& seen) const override {
    const InteractionFields fields = interaction_fields(line);
    if (!fields.wrong.empty()) return seen.bad_line([&] { return fields.wrong; });
    ++seen.samples;
    seen.field(0, fields.user);
    seen.field(1, fields.item);
  }
};

class TextInspector final : public Inspector {
 public:
  std::vector<std::string> columns() const override { return {}; }
  void look(const Line&, Seen& seen) const override { ++seen.samples; }
};

// How many columns most of the first lines have.
int64_t usual_columns(const File& file, char separator) {
  std::vector<char> buffer;
  const int64_t begin = data_begin(file);
  LineReader reader(file, begin, std::min(file.size(), begin + kFirstBytes), buffer);
  std::map<int64_t, int> counts;
  int lines = 0;
  for (Line line; lines < 100 && reader.next(line); ++lines)
    ++counts[1 + std::ranges::count(line.text(), separator)];
  const auto more = [](const auto& a, const auto& b) { return a.second < b.second; };
  return counts.empty() ? 0 : std::ranges::max_element(counts, more)->first;
}

FileKind kind_of(const File& file) {
  std::vector<char> buffer;
  LineReader reader(file, data_begin(file), file.size(), buffer);
  Line first;
  if (!reader.next(first)) return FileKind::text;
  const std::string_view text = first.text();
  const int64_t tabs = usual_columns(file, '\t');
  if (text.starts_with("label,") || text.starts_with("label\t") || tabs == 40 ||
      usual_columns(file, ',') == 40)
    return FileKind::clicks;
  return tabs >= 2 && tabs <= 4 ? FileKind::interactions : FileKind::text;
}

// Lines before `begin` that are no data, and where the data begin.
struct Start {
  int64_t header_lines = 0, first_byte = 0;
};

Start start_of_interactions(const File& file) {
  std::vector<char> buffer;
  const int64_t begin = data_begin(file);
  LineReader reader(file, begin, file.size(), buffer);
  Line line;
  if (!reader.next(line) || !interaction_fields(line).header()) return {0, begin};
  const int64_t line_end = begin + std::ssize(line.text());
  char end = 0;
  if (line_end < file.size()) file.read_at(line_end, &end, 1);
  return {1, std::min(line_end + (end == '\r' ? 2 : 1), file.size())};
}

// How many of each label.
std::vector<int64_t> counts_of(std::span<const uint8_t> labels) {
  std::vector<int64_t> counts;
  for (const uint8_t label : labels) {
    if (label >= std::ssize(counts)) counts.resize(label + 1);
    ++counts[label];
  }
  return counts;
}

// Neither is a text: the one begins with a zero byte, the other has records that begin with 0 … 9.
std::optional<FileKind> image_kind(const File& file) {
  constexpr int64_t kRecords = 64;  // that are looked at
  if (looks_like_idx(file)) return FileKind::idx;
  if (file.size() % kCifarRecord != 0) return std::nullopt;
  for (int64_t at = 0; at < std::min(file.size(), kRecords * kCifarRecord); at += kCifarRecord) {
    uint8_t label = 0;
    file.read_at(at, &label, 1);
    if (label >= kCifarClasses) return std::nullopt;
  }
  return FileKind::cifar10;
}

void inspect_images(const File& file, const InspectOptions& options, FileReport& report) {
  if (report.kind == FileKind::idx && read_idx_header(file).shape.size() == 1) {
    const IdxHeader header = read_idx_header(file);
    std::vector<uint8_t> labels(static_cast<size_t>(header.shape[0]));
    file.read_at(header.first_byte, labels.data(), header.shape[0]);
    report.samples = header.shape[0];
    report.images = {.shape = header.shape, .channels = {}, .labels = counts_of(labels)};
    return;
  }
  const StoredImages stored =
      report.kind == FileKind::idx ? open_idx_images(file.path()) : open_cifar10(file.path());
  constexpr int64_t kAtOnce = 1024;
  report.samples = stored.count;
  report.images = {.shape = {stored.count, stored.channels, stored.height, stored.width},
                   .channels = {},
                   .labels = counts_of(stored.labels)};
  PixelCounts counts(stored.channels);
  std::vector<uint8_t> pixels(stored.pixels());
  for (int64_t image = 0; image < stored.count; ++image) {
    stored.read(image, pixels.data());
    counts.add(pixels.data(), stored.height * stored.width);
    if (options.progress && (image + 1) % kAtOnce == 0)
      options.progress(stored.first_byte + (image + 1) * stored.stride, report.bytes);
  }
  for (int64_t channel = 0; channel < stored.channels; ++channel)
    report.images.channels.push_back(counts.moments(channel));
}

}  // namespace

FileReport inspect_file(const std::string& path, const InspectOptions& options) {
  const File file(path, File::Mode::read);
  FileReport report{.bytes = file.size()};
  if (data_begin(file) == report.bytes)
    throw SystemError(Fault::file, fmt::format("{} is empty; expected data", printable(path)));
  report.kind = options.kind ? *options.kind : image_kind(file).value_or(kind_of(file));
  if (report.kind == FileKind::idx || report.kind == FileKind::cifar10) {
    inspect_images(file, options, report);
    return report;
  }

  Start start{0, data_begin(file)};
  std::unique_ptr<Inspector> inspector;
  if (report.kind == FileKind::clicks) {
    const ClickFileHead head = read_click_head(file);
    start = {head.header_lines, head.first_byte};
    report.columns = head.columns;
    inspector = std::make_unique<ClickInspector>(head.columns, options.categories);
  } else if (report.kind == FileKind::interactions) {
    start = start_of_interactions(file);
    inspector = std::make_unique<InteractionInspector>();
  } else {
    inspector = std::make_unique<TextInspector>();
  }
  report.header_lines = report.lines = start.header_lines;

  const std::vector<std::string> names = inspector->columns();
  const int64_t pieces = parallel_pieces(report.bytes - start.first_byte, kChunk);
  std::vector<Seen> seen(pieces, Seen(names.size()));
  for (int64_t at = start.first_byte; at < report.bytes; at += pieces * kChunk) {
    parallel_for(pieces, 1, [&](int64_t from, int64_t to) {
      for (int64_t p = from; p < to; ++p) {
        Seen& mine = seen[p];
        mine.chunk_lines = 0;
        mine.chunk_bad.clear();
        const int64_t begin = at + p * kChunk;
        if (begin >= report.bytes) continue;
        LineReader reader(
            file, begin, std::min(begin + kChunk, report.bytes), mine.buffer,
            begin == start.first_byte ? LineReader::From::line : LineReader::From::middle);
        for (Line line; reader.next(line);) {
          ++mine.chunk_lines;
          mine.longest = std::max<int64_t>(mine.longest, std::ssize(line.text()));
          inspector->look(line, mine);
        }
      }
    });
    for (const Seen& piece : seen) {
      for (const BadLine& bad : piece.chunk_bad)
        if (report.bad_rows.first.size() < kReported)
          report.bad_rows.first.push_back(
              fmt::format("line {}: {}", report.lines + bad.line, bad.reason));
      report.lines += piece.chunk_lines;
    }
    if (options.progress)
      options.progress(std::min(at + pieces * kChunk, report.bytes), report.bytes);
  }

  for (size_t p = 0; p < seen.size(); ++p) {
    report.samples += seen[p].samples;
    report.positives += seen[p].positives;
    report.bad_rows.count += seen[p].bad;
    report.longest_line = std::max(report.longest_line, seen[p].longest);
    for (size_t c = 0; c < names.size() && p > 0; ++c) {
      seen[0].missing[c] += seen[p].missing[c];
      seen[0].distinct[c].merge(seen[p].distinct[c]);
    }
  }
  for (size_t c = 0; c < names.size(); ++c)
    report.features.push_back(
        {names[c], seen[0].missing[c], seen[0].distinct[c].count(), seen[0].distinct[c].exact()});
  return report;
}

}  // namespace lockstep::data
