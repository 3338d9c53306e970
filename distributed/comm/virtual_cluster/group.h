#pragma once
#include <map>
#include <memory>
#include <vector>

#include "distributed/comm/threads/member.h"
#include "distributed/comm/virtual_cluster/durations.h"
#include "distributed/comm/virtual_cluster/network.h"
#include "distributed/comm/virtual_cluster/run.h"
#include "distributed/comm/virtual_cluster/scheduler.h"

namespace lockstep::distributed::virtual_cluster {

/// A micro-batch that a rank computes, in virtual seconds.
struct Computing {
  double begin = 0, forward = 0, backward = 0;
  int64_t micro = 0;
  bool open = false;
  double at(double fraction) const { return begin + forward + fraction * backward; }
};

/// What all ranks of a run share.
struct World {
  World(std::shared_ptr<Run> modelled, int ranks, int cores, std::chrono::milliseconds timeout)
      : run(std::move(modelled)),
        durations(run->cluster, ranks, run->seed),
        scheduler(ranks, cores, timeout),
        computing(static_cast<size_t>(ranks)) {}

  std::shared_ptr<Run> run;
  Durations durations;
  Scheduler scheduler;
  std::vector<Computing> computing;  ///< by rank
};

class Service;

/// The ranks of one communicator: the tensors are moved as the backend `threads` moves them, by
/// whoever comes last, and the time that takes is modelled. Callers hold the scheduler's lock.
///
/// CONTRACT: each communicator has links of its own; collectives of different groups do not queue
/// behind each other.
class Group {
 public:
  Group(std::shared_ptr<World> world, std::shared_ptr<threads::Group> data,
        std::vector<int> world_ranks);

  int size() const { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int rank) const { return world_ranks_[rank]; }
  World& world() const { return *world_; }
  threads::Group& data() { return *data_; }
  threads::Member& member(int rank) { return *ranks_[rank].member; }

  /// Publishes a rank's operation; waits while too many are on their way. `untimed`: it takes no
  /// modelled time, and does not make clocks meet.
  enum class Timing { modelled, untimed };
  void post(int rank, const Operation& operation, Timing timing, Scheduler::Lock& lock,
            int color = 0, int key = 0);
  /// Whether everybody has done what the operation needs; not yet whether its time has come.
  bool complete(int rank, int64_t sequence) const { return ranks_[rank].timed >= sequence; }
  /// When it ends, of a complete operation: virtual seconds. 0: it took no time.
  double end(int rank, int64_t sequence) const;
  void wait(int rank, int64_t sequence, Scheduler::Lock& lock);
  /// Enters a complete operation in the rank's books, once.
  void tell(int rank, int64_t sequence);
  /// The part that a finished split made for this rank, and its number in it.
  std::pair<std::shared_ptr<Group>, int> part(int rank, int64_t sequence);
  /// Service number `number`, made by the first who asks.
  std::shared_ptr<Service> service(int64_t number, const MakeServiceLogic& make);
  const Network& network() const { return network_; }

 private:
  static constexpr int kRing = threads::Group::kRing;
  struct Pending {
    double issued = 0, end = 0;
    Timing timing = Timing::modelled;
    Interval time = {};  // of what is still to be told to the timeline
    double bytes = 0;
    bool to_tell = false;
  };
  struct Rank {
    std::unique_ptr<threads::Member> member;
    std::vector<Pending> pending;  // kRing
    int64_t posted = 0, timed = 0;
    int64_t awaited = 0;   // an operation that it blocks for; 0: none
    bool for_all = false;  // until all ranks are through with it
  };
  Pending& pending(int rank, int64_t sequence) {
    return ranks_[rank].pending[static_cast<size_t>(sequence % kRing)];
  }
  bool satisfied(int rank) const;
  void block(int rank, Scheduler::Lock& lock);
  void settle(int64_t bytes);  // moves what can be moved, and says when that ends
  bool settle_next(int rank);
  void time_together(int64_t sequence);
  void time_alone(int rank, int64_t sequence);
  void finish(int rank, int64_t sequence, Interval time, double bytes);
  Cost cost_of(int64_t sequence);
  std::string describe(int rank, int64_t sequence);

  std::shared_ptr<World> world_;
  std::shared_ptr<threads::Group> data_;
  std::vector<int> world_ranks_;
  Network network_;
  std::vector<Rank> ranks_;
  std::vector<double> busy_until_;  // the ranks' links
  std::map<threads::Group*, std::weak_ptr<Group>> parts_;
  std::map<int64_t, std::weak_ptr<Service>> services_;
  std::vector<int64_t> bytes_;  // scratch: of collectives with parts
  std::vector<double> issued_;  // scratch: when ranks came to a collective
};

}  // namespace lockstep::distributed::virtual_cluster
