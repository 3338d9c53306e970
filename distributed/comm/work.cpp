#include "distributed/comm/work.h"

#include <optional>

#include "core/profile.h"
#include "distributed/comm/meter.h"

namespace lockstep::distributed {

using State = FlightRecorder::Entry::State;

Work::~Work() {
  if (meter_ && !finished_ && !error_) meter_->forget();
}

template <class F>
bool Work::attempt(F&& step) {
  if (finished_) return true;
  if (error_) std::rethrow_exception(error_);
  std::optional<Meter::Exposed> exposed;
  if (meter_) exposed.emplace(*meter_);
  try {
    finished_ = step();
  } catch (...) {
    error_ = std::current_exception();
    if (meter_) meter_->end(sequence_, State::failed);
    throw;
  }
  if (meter_ && finished_) {
    meter_->end(sequence_, State::finished);
    if (Profile* profile = Profile::here(); profile != nullptr && profiled_.begin_ns >= 0)
      profile->transfer(name_of(profiled_.verb), profiled_.begin_ns, profile->now(),
                        {.bytes = static_cast<double>(profiled_.bytes)});
  }
  return finished_;
}

std::string_view Work::waiting() const {
  return meter_ ? waiting_for(profiled_.verb) : "finish exchange";
}

bool Work::done() {
  if (finished_ || error_) return true;
  const ProfileSpan span(Profile::Kind::collective, "move collectives");
  try {
    return attempt([this] { return poll(); });
  } catch (...) {  // kept in error_, for wait() to throw
    return true;
  }
}

void Work::wait() {
  const ProfileSpan span(Profile::Kind::collective, waiting());
  attempt([this] { return block(nullptr); });
}

bool Work::wait_until(Clock::time_point until) {
  const ProfileSpan span(Profile::Kind::collective, waiting());
  return attempt([this, &until] { return block(&until); });
}

}  // namespace lockstep::distributed
