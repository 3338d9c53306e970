#include "distributed/comm/virtual_cluster/overlap.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"

namespace lockstep::distributed::virtual_cluster {

std::vector<double> ready_shares(std::span<const int64_t> elements) {
  const int64_t all = std::accumulate(elements.begin(), elements.end(), int64_t{0});
  std::vector<double> shares;
  shares.reserve(elements.size());
  int64_t so_far = 0;
  for (const int64_t n : elements) {
    so_far += n;
    shares.push_back(so_far == all ? 1 : static_cast<double>(so_far) / static_cast<double>(all));
  }
  return shares;
}

std::vector<Interval> queued(std::span<const double> ready, std::span<const double> seconds) {
  check(ready.size() == seconds.size(), "[distributed.overlap] expected {} durations, got {}",
        ready.size(), seconds.size());
  std::vector<Interval> out;
  out.reserve(ready.size());
  for (size_t i = 0; i < ready.size(); ++i) {
    const double begin = out.empty() ? ready[i] : std::max(ready[i], out.back().end);
    out.push_back({begin, begin + seconds[i]});
  }
  return out;
}

Interval collective(std::span<const double> issued, std::span<double> busy_until, double seconds) {
  check(!issued.empty() && issued.size() == busy_until.size(),
        "[distributed.overlap] expected {} links, got {}", issued.size(), busy_until.size());
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
