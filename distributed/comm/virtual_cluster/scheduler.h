#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "core/check.h"
#include "distributed/comm/virtual_cluster/handover.h"

namespace lockstep::distributed::virtual_cluster {

/// Note [Whose turn it is]
/// Every rank is a thread with a clock of its own in virtual seconds. What ranks do to each other
/// falls into two kinds. A collective needs all of its ranks, so that when it begins and ends, and
/// what it computes, follow from their clocks whichever thread comes first. An event, a call of a
/// service, changes what others will see: it must happen in the order of (time, rank). So each rank
/// publishes the earliest time at which it may cause an event, and an event at time t waits until
/// everybody else's earliest is later. A rank that waits for others cannot cause one; whoever wakes
/// it does so at a time not before the waker's own, and publishes that for it. (Conservative
/// parallel simulation: Chandy and Misra 1979, Bryant 1977.)
///
/// In between, ranks compute real gradients on as many cores as there are: a rank gives its core
/// away while it waits for anything, so that at most that many sets of activations exist. Of those
/// that want a core the one that is furthest behind gets it.
///
/// One mutex guards this and whatever the ranks share; callers hold it.
class Scheduler {
 public:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  /// `timeout`: how long nothing at all may happen while a rank waits.
  Scheduler(int ranks, int cores, std::chrono::milliseconds timeout);

  [[nodiscard]] Lock lock() { return Lock(mutex_); }

  /// The calling thread becomes a rank: waits for a core. Later: it is none any more.
  void enter(int rank, Lock& lock);
  void leave(int rank);

  double now(int rank) const { return ranks_[rank].now; }
  double earliest(int rank) const { return ranks_[rank].earliest; }
  /// The rank's clock moves on to `time`, never back.
  void advance(int rank, double time);
  /// The rank will cause no event before `time`.
  void promise(int rank, double time);
  /// Waits until an event of this rank at `time` may happen; its clock is then there.
  void await_turn(int rank, double time, Lock& lock);
  /// Waits for release(). `what` tells what for, should all be waiting.
  void block(int rank, std::function<std::string()> what, Lock& lock);
  /// A rank that blocks may go on, and will do nothing before `earliest`.
  void release(int rank, double earliest);

  /// Ends it for all ranks: those that wait throw SystemError(communication), now and later. The
  /// first cause counts.
  void fail(const std::string& cause, const FaultSite& site);
  bool failed() const { return failed_; }
  int free_cores() const { return free_cores_; }
  void throw_if_failed() const;
  const FaultSite& site() const { return site_; }

 private:
  enum class State { absent, ready, running, turn, blocked, left };
  struct Rank {
    State state = State::absent;
    double now = 0;
    double earliest = 0;  // of its next event
    std::function<std::string()> what;
    std::condition_variable changed;
    Handover core;
  };
  void sleep(int rank, Lock& lock);
  void rest(int rank, State state);  // the rank's core becomes free
  void dispatch();
  void grant_turn();
  void give_cores();
  void expect_somebody();

  std::mutex mutex_;
  std::vector<Rank> ranks_;
  int free_cores_;
  Rank* sleeper_ = nullptr;  // it gave its core away and will sleep: who gets it wakes there
  std::chrono::milliseconds timeout_;
  int64_t changes_ = 0;
  bool failed_ = false;
  std::string cause_;
  FaultSite site_;
};

}  // namespace lockstep::distributed::virtual_cluster
