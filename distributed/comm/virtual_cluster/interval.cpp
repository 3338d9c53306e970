#include "distributed/comm/virtual_cluster/interval.h"

#include <algorithm>

namespace lockstep::distributed::virtual_cluster {
namespace {

double common(const Interval& a, const Interval& b) {
  return std::max(0.0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

}  // namespace

void IntervalSet::add(Interval interval) {
  if (!(interval.begin < interval.end)) return;
  // Those from `first` to before `last` touch it.
  auto last = intervals_.end();
  while (last != intervals_.begin() && std::prev(last)->begin > interval.end) --last;
  auto first = last;
  while (first != intervals_.begin() && std::prev(first)->end >= interval.begin) --first;
  if (first == last) {
    intervals_.insert(first, interval);
    return;
  }
  first->end = std::max(std::prev(last)->end, interval.end);
  first->begin = std::min(first->begin, interval.begin);
  intervals_.erase(std::next(first), last);
}

void IntervalSet::keep_last(size_t count) {
  if (intervals_.size() > count)
    intervals_.erase(intervals_.begin(), intervals_.end() - static_cast<std::ptrdiff_t>(count));
}

double IntervalSet::covered(Interval window) const {
  double sum = 0;
  for (auto i = intervals_.rbegin(); i != intervals_.rend() && i->end > window.begin; ++i)
    sum += common(*i, window);
  return sum;
}

double IntervalSet::covered_with(const IntervalSet& other, Interval window) const {
  double sum = 0;
  auto i = intervals_.rbegin();
  auto j = other.intervals_.rbegin();
  while (i != intervals_.rend() && j != other.intervals_.rend() && i->end > window.begin &&
         j->end > window.begin) {
    sum += common({std::max(i->begin, j->begin), std::min(i->end, j->end)}, window);
    if (i->begin > j->begin)
      ++i;
    else
      ++j;
  }
  return sum;
}

}  // namespace lockstep::distributed::virtual_cluster
