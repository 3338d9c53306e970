#pragma once
#include "core/tensor.h"
#include "optim/verdict.h"

namespace lockstep::optim {

/// Loss scaling. Here: a fixed power of two (1: none); the dynamic rule joins with low precision.
/// The scale is constant within an accumulation window and equal on all ranks.
class GradScaler {
 public:
  explicit GradScaler(double scale = 1);
  double scale() const { return scale_; }
  /// loss · scale, as a recorded operation (the loss itself where the scale is 1).
  Tensor scale(const Tensor& loss) const;
  /// After the step: learns whether it was applied.
  void update(const StepVerdict& verdict);

 private:
  double scale_;
};

}  // namespace lockstep::optim
