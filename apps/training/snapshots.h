#pragma once
#include <optional>
#include <string>

#include "core/memory_state.h"
#include "layers/module.h"
#include "optim/flat_params.h"
#include "optim/grad_scaler.h"
#include "optim/optimizer.h"

namespace lockstep::apps {

/// `--on-divergence`: end the run, or go back to where all was well and on with another strategy.
struct OnDivergence {
  std::string fallback;  ///< spec of a strategy; empty: stop
  /// "stop", "fallback:SPEC"; UsageError.
  static OnDivergence parse(const std::string& text);
};

/// A run as it was after a step, in memory.
struct Snapshot {
  int64_t step = 0, updates = 0;  ///< steps done; of them applied
  double loss = 0;
  Tensor weights;    ///< f32, flat
  MemoryState rest;  ///< optimiser, scaler and the model's buffers
};

/// The last snapshots of a run that were good: one rank takes them, every now and then. A run can
/// be lost some time before its loss says so; so a snapshot counts once the run has gone on well
/// for as long again.
class Snapshots {
 public:
  static constexpr int64_t kEvery = 25;  ///< steps
  /// After a step, and before the first one (0, of any loss): takes one when it is time. A loss
  /// that has risen by more than half since the one before does not look well, and is waited out.
  void after_step(int64_t step, int64_t updates, double loss, optim::Optimizer& optimizer,
                  optim::GradScaler& scaler, layers::Module& model);
  /// The one to go back to; null: none was taken.
  const Snapshot* good() const { return good_ ? &*good_ : newest_ ? &*newest_ : nullptr; }

 private:
  int64_t seen_ = -1;  // the last step it was told of
  std::optional<Snapshot> good_, newest_;
};

/// Puts a snapshot's weights into the parameters (before anything is built on them), and the rest
/// into what was built.
void restore_weights(const Snapshot& from, optim::FlatParams& params);
void restore_rest(const Snapshot& from, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                  layers::Module& model);

}  // namespace lockstep::apps
