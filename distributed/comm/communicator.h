#pragma once
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "distributed/comm/backend.h"
#include "distributed/comm/flight_recorder.h"

namespace lockstep::distributed {

/// What one rank communicated. `payload` is the rank's own tensors; `wire` is what the algorithm
/// brings to a rank from others, e.g. 2·(n-1)/n of the payload for an all-reduce (ring or slices).
struct VerbStats {
  int64_t calls = 0, payload_bytes = 0;
  double wire_bytes = 0;
  VerbStats& operator+=(const VerbStats& other);
};
struct CommStats {
  std::array<VerbStats, kVerbs> verbs{};
  VerbStats service;  ///< calls of services; all that travels, there and back, is on the wire
  double comm_s = 0;  ///< time during which at least one operation was on its way
  double exposed_s =
      0;  ///< time this rank's thread spent in the communicator: posting, moving, waiting

  const VerbStats& operator[](Verb verb) const { return verbs[static_cast<int>(verb)]; }
  VerbStats total() const;
  CommStats& operator+=(const CommStats& other);
};

/// The ranks that work together, as one of them sees it. Checks the arguments, counts bytes and
/// time, notes the operation in the flight recorder, then asks the backend. All ranks call the same
/// verbs in the same order. Not shared between threads; there is no communicator of the process.
class Communicator {
 public:
  explicit Communicator(std::unique_ptr<CommBackend> backend);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Every rank's x becomes the reduction over all, with the same bits everywhere.
  WorkPtr all_reduce(const Tensor& x, const ReduceSpec& spec = {});
  /// `in` is cut into counts[0], counts[1], … elements (empty: equal parts); `out` becomes the
  /// reduction of this rank's part. `out` may be that part of `in`.
  WorkPtr reduce_scatter(const Tensor& out, const Tensor& in, std::span<const int64_t> counts = {},
                         const ReduceSpec& spec = {});
  /// `out` becomes the ranks' `in`, one after the other; counts[r] is rank r's numel (empty: equal
  /// parts). `in` may be this rank's part of `out`.
  WorkPtr all_gather_v(const Tensor& out, const Tensor& in, std::span<const int64_t> counts = {},
                       OpTag tag = {});
  /// Sends send_counts[r] elements of `in` to rank r, part after part; receives receive_counts[r]
  /// elements of `out` from rank r.
  WorkPtr all_to_all_v(const Tensor& out, std::span<const int64_t> receive_counts, const Tensor& in,
                       std::span<const int64_t> send_counts, OpTag tag = {});
  /// Every rank's x becomes that of `root`.
  WorkPtr broadcast(const Tensor& x, int root, OpTag tag = {});
  /// Sends `in` to a rank and receives `out` from one, either of which may be kNobody. Called by
  /// all ranks; waits for partners only.
  WorkPtr send_recv(const Tensor& out, int from, const Tensor& in, int to, OpTag tag = {});
  /// Returns when all ranks have called it.
  void barrier();
  /// A communicator of the ranks that gave this colour, ordered by (key, rank); null for kNobody.
  std::unique_ptr<Communicator> split(int color, int key = 0);

  /// A service that all ranks may call. `make` is called on one rank. A collective.
  std::unique_ptr<ServicePort> open_service(const MakeServiceLogic& make);

  /// What this rank computes, for backends that model time; see CommBackend.
  void compute_begins(const ComputeSpan& span) { backend_->compute_begins(span); }
  void compute_reached(double fraction) { backend_->compute_reached(fraction); }
  void step_ends(int64_t step) { backend_->step_ends(step); }
  /// This rank's time in virtual seconds; none where time is real.
  std::optional<double> virtual_time() const { return backend_->virtual_time(); }

  /// Moves posted operations along; cheap, never waits. Called between pieces of computation.
  void progress();
  /// Ends the group: what the other ranks wait for or call next fails with this text.
  void abort(const std::string& cause) noexcept;

  /// What this rank is doing, for the texts of errors.
  void set_phase(Phase phase) { phase_ = phase; }
  Phase phase() const { return phase_; }

  /// Those of communicators that were split off this one are counted in.
  CommStats stats() const;
  void reset_stats();
  const FlightRecorder& recorder() const;
  /// Bytes the backend really moved on behalf of this rank.
  int64_t moved_bytes() const { return backend_->moved_bytes(); }
  std::string_view backend_name() const { return backend_->name(); }

 private:
  friend class Untimed;
  WorkPtr post(Operation operation, int64_t payload, double wire);

  std::unique_ptr<CommBackend> backend_;
  int rank_, size_;
  Phase phase_;
  std::shared_ptr<Meter> meter_;
  std::vector<std::shared_ptr<Meter>> parts_;  // of what was split off
  int64_t services_ = 0;  // opened so far
  bool untimed_ = false;
  std::vector<int64_t> equal_counts_;  // scratch: the counts of equal parts
};

/// While it lives, what a communicator does takes no modelled time and makes no clocks meet: books
/// and evaluation, which a cluster would not wait for.
class Untimed {
 public:
  explicit Untimed(Communicator& comm) : comm_(comm), before_(comm.untimed_) {
    comm_.untimed_ = true;
  }
  ~Untimed() { comm_.untimed_ = before_; }
  Untimed(const Untimed&) = delete;
  Untimed& operator=(const Untimed&) = delete;

 private:
  Communicator& comm_;
  bool before_;
};

}  // namespace lockstep::distributed
