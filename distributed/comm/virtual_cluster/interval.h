#pragma once
#include <span>

namespace lockstep::distributed::virtual_cluster {

/// A piece of virtual time, in seconds (or any other unit), begin <= end.
struct Interval {
  double begin = 0, end = 0;
  double length() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

/// The time covered by at least one of these; they may overlap and come in any order.
double covered(std::span<const Interval> intervals);
/// The time covered by one of `a` and one of `b` at once.
double covered_by_both(std::span<const Interval> a, std::span<const Interval> b);

}  // namespace lockstep::distributed::virtual_cluster
