#pragma once
#include "autograd/table_gradient.h"
#include "core/sparse_grad.h"
#include "optim/table_optimizer.h"

namespace lockstep::distributed {

/// The gradient of rows between their exchange and the step. It is coalesced in the step itself,
/// which is the faster way, unless somebody looks at it before.
class PendingGradient {
 public:
  /// `gradient` stays the owner's; it is cleared in the end.
  void set(autograd::TableGradient& gradient) { source_ = &gradient; }
  void set(const SparseGrad& gradient) { coalesced_ = gradient; }

  /// Each row once.
  const SparseGrad& coalesced();
  /// Steps where the verdict applies, and forgets.
  void step(optim::TableOptimizer& optimizer, const optim::StepVerdict& verdict);
  void clear();

 private:
  autograd::TableGradient* source_ = nullptr;
  SparseGrad coalesced_;
};

}  // namespace lockstep::distributed
