#include "apps/compare/runs_progress.h"

#include "apps/cli/console.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {

RunsProgress::RunsProgress(int64_t runs, double weight, Progress::Style style)
    : runs_(runs), weight_(weight), style_(style), shown_(begin_ - std::chrono::hours(1)) {}

RunsProgress::~RunsProgress() {
  if (drawn_) say("\r\033[K");
}

void RunsProgress::finished(double weight, const std::string& what) {
  ++done_;
  done_weight_ += weight;
  if (style_ == Progress::Style::quiet) return;
  const auto now = Clock::now();
  const bool bar = style_ == Progress::Style::bar;
  if (!bar && now - shown_ < std::chrono::seconds(5) && done_ < runs_) return;
  shown_ = now;
  const double elapsed = std::chrono::duration<double>(now - begin_).count();
  const double left = done_weight_ > 0 ? elapsed * (weight_ / done_weight_ - 1) : 0;
  const std::string text =
      fmt::format("run {}/{}  {} left  {}", done_, runs_, duration_text(left), what);
  if (bar) {
    const int width = std::max(terminal_width() - 1, 1);
    say(fmt::format("\r{:.{}}\033[K", text, width));
    drawn_ = true;
  } else {
    say(fmt::format("{:.{}}\n", text, 160));
  }
}

}  // namespace lockstep::apps
