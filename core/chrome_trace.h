#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "core/file.h"

namespace lockstep {

/// Writes a timeline in the Chrome trace format (Google's "Trace Event Format", the JSON object
/// form), which ui.perfetto.dev and chrome://tracing open: processes have lanes, lanes have spans,
/// spans of a lane nest. Events go to the file as they come, in any order, so a trace may be larger
/// than memory. Complete or absent: without commit() nothing is left. Used by one thread at a time.
///
/// Failures of the file are SystemError(file), at once for a path that cannot be written; a time
/// that is not finite or does not fit, a negative duration, and a call after commit() are
/// UsageErrors.
class ChromeTrace {
 public:
  explicit ChromeTrace(std::string path);

  /// How a process and a lane are called; they are shown in the order of their numbers.
  void name_process(int process, std::string_view name);
  void name_lane(int process, int lane, std::string_view name);

  struct Span {
    std::string_view name, category = "";  ///< any bytes; the category is what viewers filter by
    int process = 0, lane = 0;
    double begin_us = 0, duration_us = 0;  ///< microseconds from any origin, written to the nearest
                                           ///< nanosecond at both ends, so that nesting survives
  };
  struct Arg {
    std::string_view name;
    double value = 0;  ///< written as null where it is not finite
  };
  void span(const Span& s, std::span<const Arg> args = {});
  void span(const Span& s, std::initializer_list<Arg> args) {
    span(s, std::span(args.begin(), args.size()));
  }

  struct Instant {
    std::string_view name, category = "";
    int process = 0, lane = 0;
    double at_us = 0;
  };
  void instant(const Instant& i, std::span<const Arg> args = {});
  void instant(const Instant& i, std::initializer_list<Arg> args) {
    instant(i, std::span(args.begin(), args.size()));
  }

  void commit();

 private:
  void open(char phase, std::string_view name, int process, int lane);
  void metadata(std::string_view what, int process, int lane, std::string_view name);
  void text(std::string_view key, std::string_view value);
  void nanoseconds(std::string_view key, int64_t ns);
  void close(std::span<const Arg> args);

  AtomicFile file_;
  std::string waiting_;  // for the file
  bool first_ = true, committed_ = false;
};

}  // namespace lockstep
