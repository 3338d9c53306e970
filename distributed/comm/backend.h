#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor.h"
#include "distributed/comm/options.h"
#include "distributed/comm/service.h"
#include "distributed/comm/work.h"

namespace lockstep::distributed {

inline constexpr int kNobody = -1;

/// One collective as a communicator hands it to its backend, checked on this rank's side. Which
/// fields count depends on the verb; see Communicator for what they mean.
struct Operation {
  Verb verb = Verb::barrier;
  Tensor out, in;                        ///< equal for verbs that work in place
  ReduceSpec reduce = {};                ///< all_reduce, reduce_scatter
  std::span<const int64_t> counts = {};  ///< reduce_scatter, all_gather: elements by rank
  std::span<const int64_t> send_counts = {}, receive_counts = {};  ///< all_to_all
  int root = 0;                                                    ///< broadcast
  int to = kNobody, from = kNobody;                                ///< send_recv
  OpTag tag = {};
  Phase phase = {};
  int64_t sequence = 0;  ///< from 1, in step with the other ranks
  bool untimed = false;  ///< takes no time where time is modelled; see Untimed
};

/// A stretch of computing that is about to begin: a micro-batch's forward and backward.
struct ComputeSpan {
  int64_t step = 0;
  int64_t micro = 0;  ///< of this rank, counted over the whole run
  /// Share of backward after which the first thing may be posted.
  double first_ready = 1;
};

/// Moves bytes between the ranks of one communicator. A backend connects or throws; it never falls
/// back to one rank. Its object belongs to one rank and is used by that rank's thread.
///
/// Ranks that call different operations at the same sequence number, or sizes that do not fit, are
/// an error on all of them; so is a peer that is late, has left or has failed. Never a hang, never
/// a partial result.
class CommBackend {
 public:
  virtual ~CommBackend() = default;
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Starts an operation (any verb but split). Spans need to live during the call only.
  virtual WorkPtr post(const Operation& operation) = 0;
  /// Moves posted operations along without waiting. Throws the failure of the group, if any.
  virtual void progress() = 0;
  /// A communicator of the ranks that gave this colour, ordered by (key, rank); null for kNobody.
  virtual std::unique_ptr<CommBackend> split(const Operation& operation, int color, int key) = 0;
  /// Ends the group (and groups split off it): pending and later operations of all ranks fail with
  /// this text. Returns when no other rank touches this rank's tensors any more.
  virtual void abort(const std::string& cause) noexcept = 0;

  /// Opens the communicator's service number `number` (from 0), which all its ranks may call:
  /// `make` is called once, by one of them.
  virtual std::unique_ptr<ServicePort> open_service(int64_t number,
                                                    const MakeServiceLogic& make) = 0;

  /// For backends whose time is modelled: what the rank computes, and how far it is. `fraction` is
  /// of the span's backward, 0 when it begins and 1 when the span ends.
  virtual void compute_begins(const ComputeSpan&) {}
  virtual void compute_reached(double /*fraction*/) {}
  /// The optimiser step number `step` has ended.
  virtual void step_ends(int64_t /*step*/) {}
  /// This rank's time in seconds where it is modelled.
  virtual std::optional<double> virtual_time() const { return std::nullopt; }

  /// Bytes this rank really moved across ranks, counted where they are copied or folded.
  virtual int64_t moved_bytes() const = 0;
};

}  // namespace lockstep::distributed
