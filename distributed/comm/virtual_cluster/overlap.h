#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "distributed/comm/virtual_cluster/interval.h"

namespace lockstep::distributed::virtual_cluster {

/// The share of a backward pass after which each bucket is complete, for buckets of so many
/// elements in the order in which backward reaches them. A leaf's share of the work is taken to be
/// its share of the elements, as it is for matrix products over equally many rows. The last is 1.
std::vector<double> ready_shares(std::span<const int64_t> elements);

/// When exchanges on one link run: in this order, one at a time, none before it is `ready`, each
/// for so many `seconds`.
std::vector<Interval> queued(std::span<const double> ready, std::span<const double> seconds);

/// When a collective of several ranks runs: from when the last of them has `issued` it and has
/// finished what its link was busy with. `busy_until`, one for each, becomes the end.
Interval collective(std::span<const double> issued, std::span<double> busy_until, double seconds);

/// Where the time of a rank went.
struct StepTimes {
  double compute = 0;  ///< seconds of computing
  double wait = 0;     ///< the rest of the step: others, exposed communication
  double exposed = 0;  ///< communication while the rank waited
  double hidden = 0;   ///< communication while it computed

  double seconds() const { return compute + wait; }
  /// Waiting while nothing of its own was on the way: for slower ranks, or for a busy service.
  double idle() const { return wait - exposed; }
  /// Computing over all; 1 for no time at all.
  double utilisation() const { return seconds() > 0 ? compute / seconds() : 1; }

  StepTimes& operator+=(const StepTimes& other);
};
/// Of one rank's step, from what it computed and what it communicated within it. Communications
/// that overlap each other count once. compute + wait = step, 0 <= exposed <= wait.
StepTimes account(Interval step, const IntervalSet& compute, const IntervalSet& communication);

}  // namespace lockstep::distributed::virtual_cluster
