#pragma once
#include <chrono>
#include <exception>
#include <memory>

#include "distributed/comm/options.h"

namespace lockstep::distributed {

using Clock = std::chrono::steady_clock;
class Meter;

/// A collective on its way. It holds its tensors until it has finished on all ranks; until then its
/// inputs must not be written nor its outputs read. Used by the rank's own thread only.
class Work {
 public:
  virtual ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Whether it has finished or failed; moves things along, never blocks, never throws.
  bool done();
  /// Returns when it has finished (on a stream: when later work there will see the result). Throws
  /// what it failed with, each time: SystemError(communication) naming the late ranks after the
  /// communicator's time-out.
  void wait();
  /// Waits at most this long; whether it has finished. Throws what it failed with.
  bool wait_for(std::chrono::milliseconds limit) { return wait_until(Clock::now() + limit); }
  bool wait_until(Clock::time_point until);
  /// What it failed with; null while all is well.
  std::exception_ptr error() const { return error_; }

 protected:
  Work() = default;
  /// Whether it has finished; moves things along. Throws the failure.
  virtual bool poll() = 0;
  /// Blocks until it has finished, or `until`: whether it has. Throws the failure; without `until`
  /// after the communicator's time-out, too.
  virtual bool block(const Clock::time_point* until) = 0;

 private:
  friend class Communicator;
  template <class F>
  bool attempt(F&& step);  // runs a step unless finished; keeps its failure and tells the meter
  std::string_view waiting() const;  // as profiles call it

  // Set by the communicator: times and the flight recorder. Null for a work made of others.
  std::shared_ptr<Meter> meter_;
  int64_t sequence_ = 0;
  struct {
    Verb verb = Verb::barrier;
    int64_t bytes = 0, begin_ns = -1;  // -1: nobody is profiling
  } profiled_;
  bool finished_ = false;
  std::exception_ptr error_;
};
using WorkPtr = std::shared_ptr<Work>;

}  // namespace lockstep::distributed
