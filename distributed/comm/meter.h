#pragma once
#include "distributed/comm/communicator.h"

namespace lockstep::distributed {

/// One rank's counters of one communicator, shared with the works on their way.
class Meter {
 public:
  CommStats stats;
  FlightRecorder recorder;

  int64_t begin(Verb verb, int64_t bytes, OpTag tag, Phase phase) {
    const Clock::time_point now = Clock::now();
    if (in_flight_++ == 0) busy_since_ = now;
    return recorder.post(verb, bytes, tag, phase, now);
  }
  void end(int64_t sequence, FlightRecorder::Entry::State state) {
    const Clock::time_point now = Clock::now();
    recorder.finish(sequence, state, now);
    if (--in_flight_ == 0) stats.comm_s += seconds(now - busy_since_);
  }
  /// While it lives, something is on its way that the flight recorder does not number.
  class Busy {
   public:
    explicit Busy(Meter& meter) : meter_(meter) {
      if (meter_.in_flight_++ == 0) meter_.busy_since_ = Clock::now();
    }
    ~Busy() { meter_.forget(); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    Meter& meter_;
  };
  /// A work was dropped before anybody saw it finish.
  void forget() {
    if (--in_flight_ == 0) stats.comm_s += seconds(Clock::now() - busy_since_);
  }
  bool anything_in_flight() const { return in_flight_ > 0; }
  CommStats so_far() const {
    CommStats s = stats;
    if (in_flight_ > 0) s.comm_s += seconds(Clock::now() - busy_since_);
    return s;
  }
  void reset() {
    stats = {};
    busy_since_ = Clock::now();
  }

  /// While it lives, the rank's thread counts as being in the communicator.
  class Exposed {
   public:
    explicit Exposed(Meter& meter) : meter_(meter), since_(Clock::now()) {}
    ~Exposed() { meter_.stats.exposed_s += seconds(Clock::now() - since_); }
    Exposed(const Exposed&) = delete;
    Exposed& operator=(const Exposed&) = delete;

   private:
    Meter& meter_;
    Clock::time_point since_;
  };

 private:
  static double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }
  int in_flight_ = 0;
  Clock::time_point busy_since_;
};

}  // namespace lockstep::distributed
