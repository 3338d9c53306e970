#include "apps/report/progress.h"

#include "apps/cli/console.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::apps {

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e9) return "long";
  const auto s = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

Progress::Style Progress::fitting() { return stderr_is_terminal() ? Style::bar : Style::lines; }

Progress::Progress(int64_t steps, Style style, std::string unit)
    : steps_(steps), style_(style), unit_(std::move(unit)) {}

Progress::~Progress() { erase(); }

void Progress::erase() {
  if (drawn_) say("\r\033[K");
  drawn_ = false;
}

void Progress::update(int64_t step, double loss, double units_per_s) {
  if (style_ == Style::quiet) return;
  const auto now = Clock::now();
  const auto pause =
      style_ == Style::bar ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000);
  if (now - shown_ < pause && !(style_ == Style::bar && step == steps_)) return;
  shown_ = now;
  const double elapsed = std::chrono::duration<double>(now - begin_).count();
  const double left = elapsed / static_cast<double>(step) * static_cast<double>(steps_ - step);
  std::string text = fmt::format("step {}/{}  loss {:.4f}  {:.0f} {}/s  {} left", step, steps_,
                                 loss, units_per_s, unit_, duration_text(left));
  if (style_ == Style::lines) {
    say(text + "\n");
    return;
  }
  const int room = terminal_width() - static_cast<int>(text.size()) - 4;
  if (room >= 10) {
    const int width = std::min(room, 40);
    const auto full =
        static_cast<int>(static_cast<double>(step) / static_cast<double>(steps_) * width);
    text = fmt::format("[{:#<{}}{:.<{}}] {}", "", full, "", width - full, text);
  }
  say(fmt::format("\r{:.{}}\033[K", text, std::max(terminal_width() - 1, 1)));
  drawn_ = true;
}

void Progress::note(const std::string& text) {
  if (style_ != Style::quiet) warn(text);
}

void Progress::warn(const std::string& text) {
  erase();
  say(text + "\n");
}

}  // namespace lockstep::apps
