#include "distributed/comm/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace lockstep::distributed {
namespace {

std::string describe_bytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < int64_t{1} << 20) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
  if (bytes < int64_t{1} << 30)
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

std::string describe(Verb verb, int64_t sequence, OpTag tag, int64_t bytes) {
  std::string text = fmt::format("{} #{}", name_of(verb), sequence);
  if (tag.what != nullptr)
    text += fmt::format(" ({} {}, {})", tag.what, tag.index, describe_bytes(bytes));
  else if (bytes > 0)
    text += fmt::format(" ({})", describe_bytes(bytes));
  return text;
}

std::string describe(const Phase& phase) {
  return phase.what == nullptr ? "" : fmt::format("{} {}", phase.what, phase.step);
}

int64_t FlightRecorder::post(Verb verb, int64_t bytes, OpTag tag, Phase phase,
                             Clock::time_point now) {
  const int64_t sequence = ++posted_;
  entries_[sequence % kKept] = {sequence, verb, bytes, tag, phase, now, {}, Entry::State::posted};
  return sequence;
}

void FlightRecorder::finish(int64_t sequence, Entry::State state, Clock::time_point now) {
  Entry& entry = entries_[sequence % kKept];
  if (entry.sequence != sequence) return;  // forgotten since
  entry.state = state;
  entry.finished = now;
}

const FlightRecorder::Entry* FlightRecorder::find(int64_t sequence) const {
  const Entry& entry = entries_[sequence % kKept];
  return sequence > 0 && entry.sequence == sequence ? &entry : nullptr;
}

std::string FlightRecorder::text() const {
  std::string text;
  for (int64_t s = std::max<int64_t>(1, posted_ - kKept + 1); s <= posted_; ++s) {
    const Entry& entry = entries_[s % kKept];
    text += describe(entry.verb, s, entry.tag, entry.bytes);
    if (entry.phase.what != nullptr) text += ", " + describe(entry.phase);
    if (entry.state == Entry::State::posted) {
      text += ", on its way\n";
      continue;
    }
    const std::chrono::duration<double, std::milli> took = entry.finished - entry.posted;
    fmt::format_to(std::back_inserter(text), ", {} after {:.3f} ms\n",
                   entry.state == Entry::State::finished ? "finished" : "failed", took.count());
  }
  return text;
}

}  // namespace lockstep::distributed
