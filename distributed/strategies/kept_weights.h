#pragma once
#include "core/kernels/elementwise.h"
#include "optim/optimizer.h"

namespace lockstep::distributed {

/// A rank's own weights while those of another model are shown for evaluation.
class KeptWeights {
 public:
  /// Copies the optimiser's weights, to be written by the caller and published, and put back later.
  void keep(optim::Optimizer& optimizer) {
    optimizer_ = &optimizer;
    kept_ = empty_like(optimizer.weights());
    kernel::copy(kept_, optimizer.weights());
  }
  /// Nothing where nothing was kept.
  void put_back() {
    if (!kept_.defined()) return;
    kernel::copy(optimizer_->authority().param, kept_);
    optimizer_->publish();
    kept_ = {};
  }

 private:
  optim::Optimizer* optimizer_ = nullptr;
  Tensor kept_;
};

}  // namespace lockstep::distributed
