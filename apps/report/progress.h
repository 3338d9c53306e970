#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep::apps {

/// Shows how a run gets on, on stderr: a bar that is redrawn on a terminal; in a pipe a plain line
/// every few seconds.
class Progress {
 public:
  enum class Style { bar, lines, quiet };
  /// `bar` on a terminal, else `lines`.
  static Style fitting();

  /// `unit`: what the speed counts, "tokens".
  Progress(int64_t steps, Style style, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Step number `step` (from 1) is done.
  void update(int64_t step, double loss, double units_per_s);
  /// A line of its own, whatever the style but `quiet`.
  void note(const std::string& text);
  /// The same in every style.
  void warn(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;
  void erase();

  int64_t steps_;
  Style style_;
  std::string unit_;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
  bool drawn_ = false;
};

/// "3 s", "2 min 05 s", "1 h 02 min"
std::string duration_text(double seconds);

}  // namespace lockstep::apps
