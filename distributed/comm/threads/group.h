#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/check.h"
#include "distributed/comm/backend.h"
#include "distributed/comm/local_service.h"

namespace lockstep::distributed::threads {

/// Why a group ended. The first cause stays.
struct Failure {
  std::string text;
  FaultSite site;
  int origin = 0;  ///< the rank that reported it
};

class Group;

/// What a rank publishes about one operation; others read it once `Seat::posted` covers it.
struct alignas(64) Entry {
  Verb verb = Verb::barrier;
  DType dtype = DType::f32;
  int64_t in_numel = 0, out_numel = 0;
  ReduceSpec reduce;
  int root = 0, to = kNobody, from = kNobody;
  const void* in = nullptr;
  void* out = nullptr;
  std::vector<int64_t> counts, send_counts, receive_counts;  // keep their capacity
  int color = 0, key = 0;                                    // split
  std::shared_ptr<Group> part;              // split: the new group, made by its first rank
  Tensor keep_in, keep_out;                 // alive until all ranks have finished
  std::atomic<const char*> phase{nullptr};  // may be read while the entry is being reused
  std::atomic<int64_t> phase_step{0};
};

/// A rank's place in a group. Counters count operations and only grow.
struct alignas(128) Seat {
  std::atomic<int64_t> posted{0};    // operations this rank has published
  std::atomic<int64_t> finished{0};  // operations this rank has done its share of
  std::atomic<bool> busy{false};     // is touching other ranks' tensors
  std::atomic<bool> left{false};     // will post no more
};

/// What the ranks of one communicator share. See Note [Collectives without helper threads] in
/// member.cpp.
class Group {
 public:
  static constexpr int kRing = 128;  // operations that may be on their way at once

  Group(std::vector<int> world_ranks, std::chrono::milliseconds timeout);

  int size() const { return static_cast<int>(seats_.size()); }
  std::chrono::milliseconds timeout() const { return timeout_; }
  Seat& seat(int rank) { return seats_[rank]; }
  Entry& entry(int rank, int64_t sequence) {
    return entries_[static_cast<size_t>(rank) * kRing + static_cast<size_t>(sequence % kRing)];
  }
  /// "rank 2 of 4", and its number in the world where that is another.
  std::string name_of_rank(int rank) const;
  int world_rank(int rank) const { return world_ranks_[rank]; }

  /// Ends the group and all groups split off it. The first cause counts; later ones are ignored.
  void fail(Failure failure) noexcept;
  bool failed() const { return failed_.load(); }
  /// Only once failed.
  const Failure& failure() const { return *failure_; }
  /// Waits until no rank but `self` touches tensors of others; after fail(), for good.
  void quiesce(int self) const noexcept;

  /// Sleeps until ready() holds, the group has failed (both: true) or `until` (false). ready() must
  /// become true only by changes that are followed by wake().
  template <class Ready>
  bool sleep(Ready&& ready, Clock::time_point until) {
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    const bool woken = changed_.wait_until(lock, until, [&] { return failed() || ready(); });
    sleepers_.fetch_sub(1);
    return woken;
  }
  void wake() noexcept;

  LocalServices& services() { return services_; }

  /// A group of some of these ranks; it fails when this one does.
  std::shared_ptr<Group> make_part(const std::vector<int>& ranks);

 private:
  std::vector<int> world_ranks_;
  std::chrono::milliseconds timeout_;
  std::vector<Seat> seats_;
  std::vector<Entry> entries_;  // kRing for each rank
  LocalServices services_;

  std::atomic<bool> failed_{false};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;  // guards what follows and sleeping
  std::condition_variable changed_;
  std::optional<Failure> failure_;
  std::vector<std::weak_ptr<Group>> parts_;
};

}  // namespace lockstep::distributed::threads
