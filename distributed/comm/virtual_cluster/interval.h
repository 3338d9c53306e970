#pragma once
#include <initializer_list>
#include <span>
#include <vector>

namespace lockstep::distributed::virtual_cluster {

/// A piece of virtual time, in seconds (or any other unit), begin <= end.
struct Interval {
  double begin = 0, end = 0;
  double length() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

/// Points of time, as disjoint intervals in order. Adding to the end takes constant time.
class IntervalSet {
 public:
  IntervalSet() = default;
  IntervalSet(std::initializer_list<Interval> intervals) {
    for (const Interval& i : intervals) add(i);
  }

  /// Points that are there already do not count twice. An empty interval adds nothing.
  void add(Interval interval);
  /// Forgets all intervals but the last `count`.
  void keep_last(size_t count);

  std::span<const Interval> intervals() const { return intervals_; }
  /// How much of `window` is in this set, and how much in this set and another at once.
  double covered(Interval window) const;
  double covered_with(const IntervalSet& other, Interval window) const;

 private:
  std::vector<Interval> intervals_;
};

}  // namespace lockstep::distributed::virtual_cluster
