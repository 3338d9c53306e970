#include "apps/cli/console.h"
#include "apps/cli/exit_code.h"
#include "apps/commands.h"
#include "apps/report/json_text.h"
#include "apps/report/progress.h"
#include "core/check.h"
#include "core/file.h"
#include "data/inspect.h"

#include <fmt/format.h>

#include <chrono>

namespace lockstep::apps {
namespace {

using data::FileKind;
using data::FileReport;

const char* word_of(FileKind kind) {
  return kind == FileKind::clicks         ? "clicks"
         : kind == FileKind::interactions ? "interactions"
         : kind == FileKind::idx          ? "idx"
         : kind == FileKind::cifar10      ? "cifar10"
                                          : "text";
}

// "1,234,567", whatever the locale.
std::string grouped(int64_t number) {
  std::string text = fmt::format("{}", number);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) text.insert(at, 1, ',');
  return text;
}

double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

// How far a large file is, on stderr: a line that is redrawn on a terminal, else one every few
// seconds. Small files are done before there is anything to say.
class ReadingProgress {
 public:
  ~ReadingProgress() {
    if (drawn_) say("\r\033[K");
  }
  void update(int64_t done, int64_t total) {
    const auto now = Clock::now();
    const bool terminal = stderr_is_terminal();
    if (now - shown_ <
        (terminal ? std::chrono::milliseconds(500) : std::chrono::milliseconds(5000)))
      return;
    shown_ = now;
    const double elapsed = std::chrono::duration<double>(now - begin_).count();
    const auto share = static_cast<double>(done) / static_cast<double>(total);
    const std::string text =
        fmt::format("{:.0f} % of {:.1f} GB  {:.0f} MB/s  {} left", 100 * share,
                    static_cast<double>(total) / 1e9, static_cast<double>(done) / elapsed / 1e6,
                    duration_text(elapsed / share - elapsed));
    say(terminal ? fmt::format("\r{}\033[K", text) : text + "\n");
    drawn_ = terminal;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
  bool drawn_ = false;
};

bool of_images(const FileReport& report) { return !report.images.shape.empty(); }

nlohmann::ordered_json images_json(const FileReport& report) {
  nlohmann::ordered_json json;
  json["kind"] = word_of(report.kind);
  json["bytes"] = report.bytes;
  json["samples"] = report.samples;
  json["shape"] = report.images.shape;
  json["channels"] = nlohmann::ordered_json::array();
  for (const auto& [mean, deviation] : report.images.channels)
    json["channels"].push_back({{"mean", mean}, {"deviation", deviation}});
  json["labels"] = report.images.labels;
  return json;
}

std::string images_text(const FileReport& report) {
  const auto& [shape, channels, labels] = report.images;
  std::string text =
      fmt::format("kind        {}: {}\nbytes       {}\nsamples     {}\n", word_of(report.kind),
                  shape.size() == 1 ? "labels"
                                    : fmt::format("images of {} x {}, {} {}", shape[2], shape[3],
                                                  shape[1], shape[1] == 1 ? "channel" : "channels"),
                  grouped(report.bytes), grouped(report.samples));
  if (!channels.empty())
    text += fmt::format("\n{:<12}{:>12}{:>12}\n", "channel", "mean", "deviation");
  for (size_t c = 0; c < channels.size(); ++c)
    text += fmt::format("{:<12}{:>12.4f}{:>12.4f}\n", c, channels[c].mean, channels[c].deviation);
  if (!labels.empty()) text += fmt::format("\n{:<12}{:>12}{:>12}\n", "label", "samples", "%");
  for (size_t k = 0; k < labels.size(); ++k)
    text += fmt::format("{:<12}{:>12}{:>12.2f}\n", k, grouped(labels[k]),
                        percent(labels[k], report.samples));
  return text;
}

nlohmann::ordered_json json_of(const FileReport& report) {
  if (of_images(report)) return images_json(report);
  nlohmann::ordered_json json;
  json["kind"] = word_of(report.kind);
  json["bytes"] = report.bytes;
  json["lines"] = report.lines;
  json["header_lines"] = report.header_lines;
  json["longest_line"] = report.longest_line;
  json["samples"] = report.samples;
  if (report.kind == FileKind::clicks) {
    json["separator"] = std::string(1, report.columns.separator);
    json["dense"] = report.columns.dense;
    json["categories"] = report.columns.categories;
    json["positives"] = report.positives;
  }
  json["bad_rows"] = {{"count", report.bad_rows.count}, {"first", report.bad_rows.first}};
  json["columns"] = nlohmann::ordered_json::array();
  for (const auto& column : report.features)
    json["columns"].push_back({{"name", column.name},
                               {"missing", column.missing},
                               {"distinct", column.distinct},
                               {"exact", column.exact}});
  return json;
}

std::string text_of(const FileReport& report) {
  if (of_images(report)) return images_text(report);
  std::string kind = word_of(report.kind);
  if (report.kind == FileKind::clicks)
    kind +=
        fmt::format(": label, {} dense features, {} categories, {}{}", report.columns.dense,
                    report.columns.categories, report.columns.separator == '\t' ? "TAB" : "comma",
                    report.header_lines > 0 ? ", header" : "");
  if (report.kind == FileKind::interactions)
    kind += fmt::format(": user and item, TAB{}", report.header_lines > 0 ? ", header" : "");
  std::string text =
      fmt::format("kind        {}\nbytes       {}\nlines       {}, the longest {} bytes\n", kind,
                  grouped(report.bytes), grouped(report.lines), grouped(report.longest_line));
  if (report.kind == FileKind::text) return text;
  text += fmt::format("samples     {}\n", grouped(report.samples));
  if (report.kind == FileKind::clicks)
    text += fmt::format("positives   {}, {:.2f} %\n", grouped(report.positives),
                        percent(report.positives, report.samples));
  text += fmt::format("bad rows    {}\n", grouped(report.bad_rows.count));
  for (const std::string& bad : report.bad_rows.first) text += fmt::format("  {}\n", bad);
  text += fmt::format("\n{:<12}{:>14}{:>9}{:>15}\n", "column", "missing", "%", "distinct");
  for (const auto& column : report.features)
    text += fmt::format("{:<12}{:>14}{:>9.2f}{:>15}\n", column.name, grouped(column.missing),
                        percent(column.missing, report.samples),
                        fmt::format("{}{}", column.exact ? "" : "~", grouped(column.distinct)));
  return text;
}

class InspectData final : public Command {
 public:
  InspectData()
      : Command("data inspect", "what is in a file of training data: counts, gaps, cardinalities") {
    options_.group("what");
    options_.positional(files_, "FILE",
                        "text, clicks (TSV or CSV), interactions or images (IDX, CIFAR-10)");
    options_.choice("--as", kind_, {"auto", "clicks", "interactions", "text", "idx", "cifar10"},
                    "its kind, auto by its beginning");
    options_.choice("--categories", categories_, {"hex", "text"},
                    "categories of clicks: up to 8 hexadecimal digits, or anything");
    options_.group("output");
    options_.flag("--json", json_, "one JSON object instead of lines");
  }
  std::vector<std::string> examples() const override {
    return {"data inspect train.txt", "data inspect clicks.csv --json",
            "data inspect pairs.tsv --as interactions", "data inspect train-images-idx3-ubyte"};
  }

  int run() override {
    check(files_.size() == 1, "data inspect: expected one FILE, got {}", files_.size());
    data::InspectOptions options{.categories = categories_ == "hex" ? data::Categories::hexadecimal
                                                                    : data::Categories::text};
    for (const FileKind kind : {FileKind::clicks, FileKind::interactions, FileKind::text,
                                FileKind::idx, FileKind::cifar10})
      if (kind_ == word_of(kind)) options.kind = kind;
    FileReport report;
    {
      ReadingProgress progress;
      options.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
      report = data::inspect_file(files_[0], options);
    }
    print(json_ ? json_text(json_of(report), Layout::indented) : text_of(report));
    return kOk;
  }

 private:
  std::vector<std::string> files_;
  std::string kind_ = "auto", categories_ = "hex";
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> data_inspect_command() { return std::make_unique<InspectData>(); }

}  // namespace lockstep::apps
