#pragma once
#include "optim/verdict.h"

#include "core/state_io.h"
#include "core/tensor.h"

namespace lockstep::optim {

/// Scales, growth, backoff, min and max must be powers of two, so that scaling is exact.
struct GradScalerOptions {
  double scale = 65536;  ///< of the mean loss; where a dynamic one starts, within min and max
  bool dynamic = true;   ///< false: the scale never moves
  double growth = 2;     ///< more than 1: after `interval` applied steps in a row
  double backoff = 0.5;  ///< less than 1: after a step that was skipped as not finite
  int64_t interval = 2000;
  double min = 0x1p-16, max = 0x1p24;  ///< the scale stays within, whatever happens
  int64_t max_skips = 50;              ///< as many in a row are a failure
  double nominal_weight = 1;           ///< what a full window of one rank weighs
};

/// Loss scaling (Micikevicius et al. 2018, arXiv:1710.03740). The loss is a sum over tokens;
/// backward starts from loss_sum · scale() · 2^-p with 2^p >= a rank's nominal window weight, so
/// that gradients have the size of the mean loss's. All factors are powers of two: exact, and
/// undone by the verdict while gradients are read, never in place. The scale moves in update()
/// only, so it is constant within an accumulation window, and goes by the verdict, so it is equal
/// on all ranks that share one.
class GradScaler {
 public:
  /// A fixed scale. `nominal_weight`: batch · context · micro-batches.
  explicit GradScaler(double scale = 1, double nominal_weight = 1);
  /// UsageError for what is no power of two, out of order, or would not fit in f32.
  explicit GradScaler(const GradScalerOptions& options);

  /// scale · 2^-p: what every gradient is multiplied by.
  double scale() const { return scale_ / divisor_; }
  /// The scale of the mean loss: without the 2^-p.
  double loss_scale() const { return scale_; }
  double nominal_weight() const { return options_.nominal_weight; }
  const GradScalerOptions& options() const { return options_; }
  /// loss · scale(), as a recorded operation.
  Tensor scale(const Tensor& loss) const;

  /// Once a step, after it: a step that was not finite counts as skipped and backs off; one that
  /// was applied ends a row of skips and counts towards growth. A step that was left out for want
  /// of data changes nothing.
  void update(const StepVerdict& verdict);
  /// Steps in a row that were skipped as not finite.
  int64_t skips() const { return skips_; }
  /// Whether max_skips in a row were skipped: time to end with an error, StepVerdict::first_bad
  /// knows where.
  bool failed() const { return skips_ >= options_.max_skips; }

  /// Scale and both counts.
  void state(StateIo& io);

 private:
  void check_scale(double scale) const;

  GradScalerOptions options_;
  double scale_, divisor_;  // divisor_: 2^p
  int64_t applied_ = 0;     // since the scale last moved
  int64_t skips_ = 0;
};

}  // namespace lockstep::optim
