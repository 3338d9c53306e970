#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "apps/report/progress.h"

namespace lockstep::apps {

/// How far many runs are, on stderr: a bar with the time left on a terminal, in a pipe a plain line
/// a run, at most one every few seconds.
class RunsProgress {
 public:
  RunsProgress(int64_t runs, double weight, Progress::Style style);
  ~RunsProgress();
  RunsProgress(const RunsProgress&) = delete;
  RunsProgress& operator=(const RunsProgress&) = delete;

  /// One more is done, of this much work; `what` was it. Not from two threads at once.
  void finished(double weight, const std::string& what);

 private:
  using Clock = std::chrono::steady_clock;
  int64_t runs_, done_ = 0;
  double weight_, done_weight_ = 0;
  Progress::Style style_;
  Clock::time_point begin_ = Clock::now(), shown_;
  bool drawn_ = false;
};

}  // namespace lockstep::apps
