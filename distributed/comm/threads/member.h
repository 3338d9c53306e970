#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "distributed/comm/threads/group.h"

namespace lockstep::distributed::threads {

/// One rank's side of a group: publishes its operations, does its share of everybody's, waits. Used
/// by the rank's thread only.
class Member {
 public:
  Member(std::shared_ptr<Group> group, int rank);
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  int rank() const { return rank_; }
  int size() const { return group_->size(); }
  int64_t moved_bytes() const { return moved_; }
  /// By other means than operations.
  void count_moved(int64_t bytes) { moved_ += bytes; }
  Group& group() { return *group_; }

  /// Publishes an operation. Waits while Group::kRing of them are on their way.
  void post(const Operation& operation, int color = 0, int key = 0);
  /// Does this rank's share of every operation that all who matter have published. Throws the
  /// failure of the group, if any.
  void progress();
  /// Whether it has finished on all ranks that matter.
  bool finished(int64_t sequence);
  /// progress(), then finished(): a finished operation is never reported as failed.
  bool poll(int64_t sequence);
  /// poll() until it has finished: true; or until the given time: false. Without one it throws at
  /// the group's time-out.
  bool wait(int64_t sequence, const Clock::time_point* until);
  /// Lets go of the tensors of a finished operation.
  void release(int64_t sequence);
  void abort(const std::string& cause) noexcept;
  /// Ends the group and throws what ended it.
  [[noreturn]] void fail(Failure failure);
  /// This rank will post no more: who waits for more fails at once.
  void leave() noexcept;
  /// The new group of this rank's colour, after a finished split, and this rank's number in it.
  std::pair<std::shared_ptr<Group>, int> part(int64_t sequence);

 private:
  Entry& mine(int64_t sequence) { return group_->entry(rank_, sequence); }
  bool matters(int64_t sequence, int other);  // must it arrive before, and finish after, our share?
  template <class Counter>
  bool all_reached(int64_t sequence, Counter counter);
  bool ready(int64_t sequence);
  void do_shares();
  void run_share(int64_t sequence);  // see shares.cpp
  void share_all_reduce(int64_t sequence);
  void share_reduce_scatter(int64_t sequence);
  void share_all_gather(int64_t sequence);
  void share_all_to_all(int64_t sequence);
  void share_broadcast(int64_t sequence);
  void share_send_recv(int64_t sequence);
  void share_split(int64_t sequence);
  std::vector<int> ranks_of_color(int64_t sequence);
  void pull(void* to, int from_rank, const void* from, int64_t bytes);
  /// The text of a disagreement among the ranks' entries; "" when they fit.
  std::string mismatch(int64_t sequence);

  template <class Done>
  bool wait_until(int64_t sequence, Done&& done, const Clock::time_point* until);
  /// The oldest operation up to this one that is not over on our side.
  int64_t oldest_open(int64_t sequence) const { return std::min(sequence, shared_ + 1); }
  int departed(int64_t sequence);  // a rank that left although its share is missing, or kNobody
  std::string describe_mine(int64_t sequence);
  std::string last_finished(int rank);
  std::string late_text(const std::vector<int>& late);
  [[noreturn]] void leave_behind(int rank);
  [[noreturn]] void throw_failure();
  void time_out(int64_t waited_for);

  std::shared_ptr<Group> group_;
  int rank_;
  bool crowded_;              // more ranks than cores: waiting gives the core away at once
  int spins_ = 1000;          // how long to spin before sleeping; adapts
  int64_t posted_ = 0;        // ours
  int64_t shared_ = 0;        // operations whose share we have done
  int64_t all_finished_ = 0;  // operations known to be finished everywhere
  int64_t moved_ = 0;
  std::vector<const void*> ins_;  // scratch for folding
  std::vector<void*> outs_;
};

}  // namespace lockstep::distributed::threads
