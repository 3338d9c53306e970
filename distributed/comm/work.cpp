#include "distributed/comm/work.h"

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
  const Meter::Exposed exposed(*meter_);
  try {
    finished_ = step();
  } catch (...) {
    error_ = std::current_exception();
    meter_->end(sequence_, State::failed);
    throw;
  }
  if (finished_) meter_->end(sequence_, State::finished);
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

bool Work::wait_for(std::chrono::milliseconds limit) {
  const Clock::time_point until = Clock::now() + limit;
  return attempt([this, &until] { return block(&until); });
}

}  // namespace lockstep::distributed
