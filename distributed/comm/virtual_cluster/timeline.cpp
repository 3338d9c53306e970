#include "distributed/comm/virtual_cluster/timeline.h"

#include <algorithm>

#include "core/check.h"

namespace lockstep::distributed::virtual_cluster {
namespace {

// Bounds on what a rank remembers, should steps be long or never end.
constexpr size_t kMaxKept = 10'000, kMaxPast = 512;

}  // namespace

Timeline::Timeline(int ranks, int64_t keep_steps) : keep_steps_(keep_steps) {
  check(ranks >= 1 && keep_steps >= 0,
        "[distributed.timeline] expected at least 1 rank and 0 steps, got {} and {}", ranks,
        keep_steps);
  ranks_.resize(static_cast<size_t>(ranks));
}

Timeline::Rank& Timeline::of(int rank) {
  check(rank >= 0 && rank < ranks(), "[distributed.timeline] rank {} of {}", rank, ranks());
  return ranks_[static_cast<size_t>(rank)];
}
const Timeline::Rank& Timeline::of(int rank) const { return const_cast<Timeline*>(this)->of(rank); }

void Timeline::keep(Rank& rank, const Span& span) {
  if (rank.steps < keep_steps_ && rank.kept.size() < kMaxKept) rank.kept.push_back(span);
}

void Timeline::computed(int rank, Interval time, Pass pass, int64_t micro) {
  Rank& r = of(rank);
  r.compute.add(time);
  keep(r, {.time = time,
           .kind = pass == Pass::forward ? Span::Kind::forward : Span::Kind::backward,
           .tag = {"micro", micro}});
}

void Timeline::communicated(int rank, Interval time, const char* what, OpTag tag, double bytes) {
  Rank& r = of(rank);
  // What this adds to the time before the current step, which has been accounted for.
  const Interval past = {time.begin, std::min(time.end, r.begin)};
  double covered = 0, hidden = 0;
  if (past.begin < past.end) {
    covered = r.communication.covered(past);
    hidden = r.communication.covered_with(r.compute, past);
  }
  r.communication.add(time);
  if (past.begin < past.end) {
    covered = r.communication.covered(past) - covered;
    hidden = r.communication.covered_with(r.compute, past) - hidden;
    r.late.hidden += hidden;
    r.late.exposed += std::max(0.0, covered - hidden);
  }
  keep(r,
       {.time = time, .kind = Span::Kind::communication, .what = what, .tag = tag, .bytes = bytes});
}

StepTimes Timeline::end_step(int rank, double now) {
  Rank& r = of(rank);
  check(now >= r.begin, "[distributed.timeline] rank {}: expected a time from {} s on, got {} s",
        rank, r.begin, now);
  StepTimes times = account({r.begin, now}, r.compute, r.communication);
  times += r.late;
  r.late = {};
  r.total += times;
  r.begin = now;
  if (r.steps++ < keep_steps_) r.step_ends.push_back(now);
  r.compute.keep_last(kMaxPast);
  r.communication.keep_last(kMaxPast);
  return times;
}

}  // namespace lockstep::distributed::virtual_cluster
