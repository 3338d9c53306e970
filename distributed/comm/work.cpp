#include "distributed/comm/work.h"

#include <optional>

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
  if (meter_ && finished_) meter_->end(sequence_, State::finished);
  return finished_;
}

bool Work::done() {
  if (error_) return true;
  try {
    return attempt([this] { return poll(); });
  } catch (...) {  // kept in error_, for wait() to throw
    return true;
  }
}

void Work::wait() {
  attempt([this] { return block(nullptr); });
}

bool Work::wait_until(Clock::time_point until) {
  return attempt([this, &until] { return block(&until); });
}

}  // namespace lockstep::distributed
