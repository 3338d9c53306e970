#pragma once
#include "optim/verdict.h"

#include "core/tensor.h"

namespace lockstep::optim {

/// Loss scaling. The loss is a sum over tokens; backward starts from loss_sum · scale() · 2^-p with
/// 2^p >= a rank's nominal window weight, so that gradients have the size of the mean loss's. All
/// factors are powers of two: exact, and undone by the verdict. The scale is constant within an
/// accumulation window and equal on all ranks. Here it is fixed (1: none); the dynamic rule joins
/// with low precision.
class GradScaler {
 public:
  /// `nominal_weight`: what a full window of one rank weighs (batch · context · micro-batches).
  explicit GradScaler(double scale = 1, double nominal_weight = 1);
  /// scale · 2^-p: what every gradient is multiplied by.
  double scale() const { return scale_; }
  /// The scale of the mean loss: without the 2^-p.
  double loss_scale() const { return loss_scale_; }
  double nominal_weight() const { return nominal_weight_; }
  /// loss · scale(), as a recorded operation.
  Tensor scale(const Tensor& loss) const;
  /// After the step: learns whether it was applied.
  void update(const StepVerdict& verdict);

 private:
  double loss_scale_, scale_, nominal_weight_;
};

}  // namespace lockstep::optim
