#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// n elements each: of one channel (`row`, its numbers are values), or one of each of n channels
/// (`columns`, its numbers are arrays).
struct BatchNormLoops {
  /// Adds Σ (x - origin).
  void (*row_deviation)(double* sum, const float* x, float origin, int64_t n);
  void (*columns_deviation)(float* sum, const float* x, const float* origin, int64_t n);
  /// Adds Σ (x - centre) and Σ (x - centre)².
  void (*row_moments)(double* linear, double* square, const float* x, float centre, int64_t n);
  void (*columns_moments)(float* linear, float* square, const float* x, const float* centre,
                          int64_t n);
  /// y = (x - centre - shift) · scale + offset
  void (*row_apply)(float* y, const float* x, const float* centre, const float* shift,
                    const float* scale, const float* offset, int64_t n);
  void (*columns_apply)(float* y, const float* x, const float* centre, const float* shift,
                        const float* scale, const float* offset, int64_t n);
  /// Adds Σ dy and Σ dy · (x - centre - shift).
  void (*row_sums)(double* plain, double* weighted, const float* dy, const float* x, float centre,
                   float shift, int64_t n);
  void (*columns_sums)(float* plain, float* weighted, const float* dy, const float* x,
                       const float* centre, const float* shift, int64_t n);
  /// dx = scale · (dy - mean - (x - centre - shift) · slope)
  void (*row_backward)(float* dx, const float* dy, const float* x, const float* centre,
                       const float* shift, const float* scale, const float* mean,
                       const float* slope, int64_t n);
  void (*columns_backward)(float* dx, const float* dy, const float* x, const float* centre,
                           const float* shift, const float* scale, const float* mean,
                           const float* slope, int64_t n);
};
LOCKSTEP_DECLARE_LOOPS(BatchNorm);

}  // namespace lockstep::cpu
