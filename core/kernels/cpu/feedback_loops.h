#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// See core/kernels/feedback.h. Magnitudes are bits without the sign, as those of topk_loops.h.
struct FeedbackLoops {
  int32_t (*add)(float* sum, const float* values, float factor, const float* residual, int64_t n);
  int32_t (*add_with_momentum)(float* sum, float* next_velocity, const float* values, float factor,
                               const float* residual, const float* velocity, float momentum,
                               int64_t n);
  int32_t (*largest)(const float* x, int64_t n);
  double (*squares)(const float* x, int64_t n);
};
LOCKSTEP_DECLARE_LOOPS(Feedback);

}  // namespace lockstep::cpu
