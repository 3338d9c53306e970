#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// One row of n elements each.
struct NormLoops {
  /// residual may be null (then sum is not written); beta may be null.
  void (*layer_norm)(float* out, float* sum, float* mean, float* rstd, const float* x,
                     const float* residual, const float* gamma, const float* beta, float eps,
                     int64_t n);
  /// Adds to dgamma and dbeta; dsum may be null.
  void (*layer_norm_backward)(float* dx, float* dgamma, float* dbeta, const float* dy,
                              const float* dsum, const float* x, float mean, float rstd,
                              const float* gamma, int64_t n);
};
LOCKSTEP_DECLARE_LOOPS(Norm);

}  // namespace lockstep::cpu
