#include "distributed/tables/pending_gradient.h"

namespace lockstep::distributed {

const SparseGrad& PendingGradient::coalesced() {
  if (source_ != nullptr) coalesced_ = source_->coalesce();
  source_ = nullptr;
  return coalesced_;
}

void PendingGradient::step(optim::TableOptimizer& optimizer, const optim::StepVerdict& verdict) {
  if (source_ != nullptr)
    optimizer.step(*source_, verdict);
  else if (coalesced_.rows.defined())
    optimizer.step(coalesced_, verdict);
  clear();
}

void PendingGradient::clear() {
  if (source_ != nullptr) source_->clear();
  source_ = nullptr;
  coalesced_ = {};
}

}  // namespace lockstep::distributed
