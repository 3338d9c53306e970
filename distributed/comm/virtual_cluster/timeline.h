#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "distributed/comm/options.h"
#include "distributed/comm/virtual_cluster/durations.h"
#include "distributed/comm/virtual_cluster/interval.h"
#include "distributed/comm/virtual_cluster/overlap.h"

namespace lockstep::distributed::virtual_cluster {

/// What the ranks did when, in virtual seconds: totals over the whole run, and every span of each
/// rank's first steps, for a trace and a picture. Whatever is not computing is waiting. Memory is
/// bounded: kept spans, and the last few hundred intervals of a rank. Not synchronised.
class Timeline {
 public:
  /// A kept span. Words are literals, as in OpTag.
  struct Span {
    Interval time;
    enum class Kind : uint8_t { forward, backward, communication } kind = Kind::forward;
    const char* what = "";  ///< "all_reduce", "push"; of communication
    OpTag tag = {};         ///< {"bucket", 3}; {"micro", 7}
    double bytes = 0;       ///< sent by this rank
  };

  explicit Timeline(int ranks, int64_t keep_steps = 16);

  /// A rank computed. In the order of its time, before the step that it belongs to ends.
  void computed(int rank, Interval time, Pass pass, int64_t micro);
  /// A rank communicated, from when bytes could flow (not from when it asked) to when they were
  /// there. May be told late and reach beyond the end of a step: what lies before the rank's
  /// current step is counted in it, what lies beyond its end in the next.
  void communicated(int rank, Interval time, const char* what, OpTag tag, double bytes);
  /// The rank's step ends (its next begins) now. Where its time went since the last one.
  StepTimes end_step(int rank, double now);

  int ranks() const { return static_cast<int>(ranks_.size()); }
  /// Over all steps that ended.
  const StepTimes& total(int rank) const { return of(rank).total; }
  int64_t steps(int rank) const { return of(rank).steps; }
  /// Of the first steps, in the order of telling.
  std::span<const Span> kept(int rank) const { return of(rank).kept; }
  std::span<const double> kept_step_ends(int rank) const { return of(rank).step_ends; }

  /// Writes the kept steps in the Chrome trace format: a process for each rank, a lane for what it
  /// computes and waits for, and lanes for what it communicates. 1 s is 1 s. SystemError(file).
  void write_trace(const std::string& path) const;

 private:
  struct Rank {
    IntervalSet compute, communication;  // with enough of the past for what is told late
    StepTimes late;                      // communication told late, not yet counted in a step
    StepTimes total;
    double begin = 0;  // of the current step
    int64_t steps = 0;
    std::vector<Span> kept;
    std::vector<double> step_ends;
  };
  Rank& of(int rank);
  const Rank& of(int rank) const;
  void keep(Rank& rank, const Span& span);

  int64_t keep_steps_;
  std::vector<Rank> ranks_;
};

}  // namespace lockstep::distributed::virtual_cluster
