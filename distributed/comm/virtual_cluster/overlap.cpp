#include "distributed/comm/virtual_cluster/overlap.h"

#include <algorithm>

#include "core/check.h"

namespace lockstep::distributed::virtual_cluster {

Interval collective(std::span<const double> issued, std::span<double> busy_until, double seconds) {
  check(!issued.empty() && !busy_until.empty(),
        "[distributed.overlap] expected ranks and links, got {} and {}", issued.size(),
        busy_until.size());
  const double begin =
      std::max(*std::ranges::max_element(issued), *std::ranges::max_element(busy_until));
  std::ranges::fill(busy_until, begin + seconds);
  return {begin, begin + seconds};
}

StepTimes& StepTimes::operator+=(const StepTimes& other) {
  compute += other.compute;
  wait += other.wait;
  exposed += other.exposed;
  hidden += other.hidden;
  return *this;
}

StepTimes account(Interval step, const IntervalSet& compute, const IntervalSet& communication) {
  StepTimes times;
  times.compute = std::min(compute.covered(step), step.length());  // sums round
  times.wait = step.length() - times.compute;
  times.hidden = communication.covered_with(compute, step);
  times.exposed = std::clamp(communication.covered(step) - times.hidden, 0.0, times.wait);
  return times;
}

}  // namespace lockstep::distributed::virtual_cluster
