#include "distributed/comm/virtual_cluster/interval.h"

#include <algorithm>
#include <vector>

namespace lockstep::distributed::virtual_cluster {
namespace {

/// The same points of time as disjoint intervals in order.
std::vector<Interval> merged(std::span<const Interval> intervals) {
  std::vector<Interval> sorted(intervals.begin(), intervals.end());
  std::ranges::sort(sorted, {}, &Interval::begin);
  std::vector<Interval> out;
  for (const Interval& i : sorted) {
    if (!out.empty() && i.begin <= out.back().end)
      out.back().end = std::max(out.back().end, i.end);
    else
      out.push_back(i);
  }
  return out;
}

}  // namespace

double covered(std::span<const Interval> intervals) {
  double sum = 0;
  for (const Interval& i : merged(intervals)) sum += i.length();
  return sum;
}

double covered_by_both(std::span<const Interval> a, std::span<const Interval> b) {
  const std::vector<Interval> x = merged(a), y = merged(b);
  double sum = 0;
  for (size_t i = 0, j = 0; i < x.size() && j < y.size();) {
    sum += std::max(0.0, std::min(x[i].end, y[j].end) - std::max(x[i].begin, y[j].begin));
    x[i].end < y[j].end ? ++i : ++j;
  }
  return sum;
}

}  // namespace lockstep::distributed::virtual_cluster
