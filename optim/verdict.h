#pragma once
#include "optim/flat_params.h"

#include <cstdint>
#include <span>

namespace lockstep::optim {

/// What all ranks agreed on about one step. The gradient buffer holds Σ over ranks and
/// micro-batches of scale · gradient of the loss *sum*; `factor` turns it into the clipped mean
/// when it is read.
struct StepVerdict {
  bool apply = true;     ///< false: skip (non-finite gradient, nobody active, `--uneven stop`)
  float factor = 1;      ///< clip / (all scales · Σ weight)
  int active_ranks = 1;  ///< ranks that had data in this window
  double weight = 0;     ///< Σ weight over ranks and micro-batches (tokens, samples)
  bool finite = true;    ///< no rank saw NaN or infinity
  int first_bad = -1;    ///< slice of the whole buffer with the first value that was not finite, in
                         ///< order of construction, over all ranks; -1: none, or not known
  double scale = 1;      ///< what the gradient carries: the loss scale, times what an exchange divided
  double max_norm = 0;   ///< that clip() was called with; 0: it was not
  float mean_factor = 0;  ///< `factor` before clip() changed it; 0: it was not called
  std::span<const uint8_t> used;  ///< a flag per slice of the whole buffer: some rank used it;
                                  ///< empty: all. Unused ones are not stepped. The reducer's
                                  ///< own, until its next finish_backward

  /// Scales `factor` down so that the averaged gradient's norm is at most `largest` (> 0), given
  /// the norm of the averaged gradient (all parameters together, after the reduction). Once a step.
  /// A non-finite norm makes the step not apply. Norms up to 1e38 clip to f32's precision.
  void clip(double norm, double largest);
};

}  // namespace lockstep::optim
