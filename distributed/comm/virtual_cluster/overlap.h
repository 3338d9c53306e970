#pragma once
#include <span>

#include "distributed/comm/virtual_cluster/interval.h"

namespace lockstep::distributed::virtual_cluster {

/// When a collective runs: from when the last of its ranks has `issued` it and all the links that
/// it takes are free. `busy_until`, of those links, becomes its end.
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
