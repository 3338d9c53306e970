#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "distributed/comm/options.h"
#include "optim/optimizer.h"

namespace lockstep::distributed {

class PushCode;

/// What a parameter service does with gradients. A worker's clock counts the gradients it has made;
/// a version counts the steps of the service's optimiser; a gradient's staleness is how many
/// versions it is behind when it is applied.
struct ServiceOptions {
  static constexpr int kAtOnce = -1, kEverybody = 0;
  /// kAtOnce: every gradient makes a step when it comes. K: the first K gradients of a clock make
  /// one, later ones are dropped (backup workers). kEverybody: those of all workers that are there.
  int quorum = kAtOnce;
  /// Nobody begins a clock more than this ahead of the slowest worker's; -1: no bound.
  int64_t bound = -1;
  /// Gradients staler than this are dropped; -1: none.
  int64_t drop_older = -1;

  /// The learning rate at staleness t: as it is, divided by max(1, t), or by its square root.
  enum class Rate { constant, inverse, sqrt } rate = Rate::constant;
  /// A gradient moves the parameters by the learning rate, or by a worker's share of it.
  enum class Share { full, share } share = Share::full;
  /// λ of delay compensation; 0: none.
  double compensate = 0;
};

/// What a service starts from, as the rank that makes it knows it.
struct ServiceSetup {
  ServiceOptions options;
  int workers = 1;
  optim::FlatView start;        ///< parameters to begin with, which are copied, and their slices
  DType gradient = DType::f32;  ///< of the service's buffer, like that of a worker
  DType wire = DType::f32;      ///< that gradients come in
  std::shared_ptr<const PushCode> code;  ///< or as frames of this; null: as they are
  ReduceSpec reduction = {};             ///< how a clock's are added up
  std::function<std::unique_ptr<optim::Optimizer>(optim::FlatView)> optimizer;  ///< over its copy
};

/// What became of a worker's pushes.
struct WorkerStatistics {
  static constexpr int64_t kBins = 257;
  int64_t accepted = 0;    ///< applied, or waiting for their clock's others
  int64_t late = 0;        ///< their clock was over (quorum)
  int64_t dropped = 0;     ///< too stale
  int64_t not_finite = 0;  ///< held NaN or infinity
  int64_t empty = 0;       ///< no samples: counted as a push, nothing to apply
  int64_t duplicate = 0;   ///< repeats; answered, not counted again
  int64_t skipped = 0;     ///< clocks without a push: they were over (quorum)
  double lost_weight = 0;  ///< samples or tokens in those that were late or dropped
  /// staleness[t]: gradients applied t versions behind; the last: as many or more.
  std::vector<int64_t> staleness = std::vector<int64_t>(kBins);
};
struct ServiceStatistics {
  std::vector<WorkerStatistics> workers;
  int64_t steps = 0;       ///< versions made
  int64_t overflowed = 0;  ///< sums that were not finite on a narrow wire: no step
  int64_t max_ahead = 0;   ///< clocks: the furthest that anyone was ahead of the slowest
};

}  // namespace lockstep::distributed
