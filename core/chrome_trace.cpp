#include "core/chrome_trace.h"

#include "core/check.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

namespace lockstep {
namespace {

constexpr size_t kFlushBytes = size_t{1} << 20;

std::string checked(std::string path) {
  check(!path.empty(), "[core.chrome_trace] path; expected the name of a file, got nothing");
  std::error_code ignored;  // then creating the file fails, too
  if (std::filesystem::is_directory(path, ignored))
    throw SystemError(Fault::file, fmt::format("cannot write {}: is a directory", printable(path)));
  return path;
}

int64_t to_ns(std::string_view what, double us) {
  const double ns = std::round(us * 1e3);
  check(std::abs(ns) < 9.2e18, "[core.chrome_trace] {}; expected finite microseconds, got {}", what,
        us);
  return static_cast<int64_t>(ns);
}

// As a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
void append_string(std::string& out, std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  if (plain) {
    out += '"';
    out += text;
    out += '"';
  } else {
    out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
}

}  // namespace

ChromeTrace::ChromeTrace(std::string path) : file_(checked(std::move(path))) {
  waiting_ = "{\"traceEvents\":[";
}

void ChromeTrace::open(char phase, std::string_view name, int process, int lane) {
  check(!committed_, "[core.chrome_trace] an event after commit(); expected it before");
  waiting_ += first_ ? "\n" : ",\n";
  first_ = false;
  fmt::format_to(std::back_inserter(waiting_), R"({{"ph":"{}","pid":{},"tid":{})", phase, process,
                 lane);
  text("name", name);
}

void ChromeTrace::text(std::string_view key, std::string_view value) {
  fmt::format_to(std::back_inserter(waiting_), ",\"{}\":", key);
  append_string(waiting_, value);
}

void ChromeTrace::nanoseconds(std::string_view key, int64_t ns) {
  const auto size = static_cast<uint64_t>(std::abs(ns));
  fmt::format_to(std::back_inserter(waiting_), ",\"{}\":{}{}.{:03}", key, ns < 0 ? "-" : "",
                 size / 1000, size % 1000);
}

void ChromeTrace::close(std::span<const Arg> args) {
  if (!args.empty()) {
    waiting_ += ",\"args\":{";
    for (const Arg& arg : args) {
      if (&arg != &args.front()) waiting_ += ',';
      append_string(waiting_, arg.name);
      if (std::isfinite(arg.value))
        fmt::format_to(std::back_inserter(waiting_), ":{}", arg.value);
      else
        waiting_ += ":null";
    }
    waiting_ += '}';
  }
  waiting_ += '}';
  if (waiting_.size() < kFlushBytes) return;
  file_.write(waiting_);
  waiting_.clear();
}

void ChromeTrace::metadata(std::string_view what, int process, int lane, std::string_view name) {
  open('M', fmt::format("{}_name", what), process, lane);
  waiting_ += ",\"args\":{\"name\":";
  append_string(waiting_, name);
  waiting_ += '}';
  close({});
  open('M', fmt::format("{}_sort_index", what), process, lane);
  const Arg order{"sort_index", static_cast<double>(what == "process" ? process : lane)};
  close({&order, 1});
}

void ChromeTrace::name_process(int process, std::string_view name) {
  metadata("process", process, 0, name);
}

void ChromeTrace::name_lane(int process, int lane, std::string_view name) {
  metadata("thread", process, lane, name);
}

void ChromeTrace::span(const Span& s, std::span<const Arg> args) {
  check(s.duration_us >= 0, "[core.chrome_trace] duration of {}; expected >= 0, got {}",
        printable(s.name), s.duration_us);
  const int64_t begin = to_ns("begin of a span", s.begin_us);
  const int64_t end = to_ns("end of a span", s.begin_us + s.duration_us);
  open('X', s.name, s.process, s.lane);
  if (!s.category.empty()) text("cat", s.category);
  nanoseconds("ts", begin);
  nanoseconds("dur", end - begin);
  close(args);
}

void ChromeTrace::instant(const Instant& i, std::span<const Arg> args) {
  const int64_t at = to_ns("time of an instant", i.at_us);
  open('i', i.name, i.process, i.lane);
  if (!i.category.empty()) text("cat", i.category);
  nanoseconds("ts", at);
  waiting_ += ",\"s\":\"t\"";  // drawn across its lane
  close(args);
}

void ChromeTrace::commit() {
  check(!committed_, "[core.chrome_trace] commit() was called twice; expected once");
  committed_ = true;
  waiting_ += "\n],\"displayTimeUnit\":\"ms\"}\n";
  file_.write(waiting_);
  file_.commit();
}

}  // namespace lockstep
