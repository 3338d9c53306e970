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
  /// y = (x - centre - shift) · scale + offset; `relu`: max(0, ·); `add_relu`: max(0, · + addend)
  using Apply = void(float* y, const float* x, const float* addend, const float* centre,
                     const float* shift, const float* scale, const float* offset, int64_t n);
  Apply *row_apply, *row_apply_relu, *row_apply_add_relu;
  Apply *columns_apply, *columns_apply_relu, *columns_apply_add_relu;
  /// Adds Σ d and Σ d · (x - centre - shift), where d is dy; `relu`: where what row_apply gives is
  /// more than 0, else 0; `through`: where y is, and d is stored.
  void (*row_sums)(double* plain, double* weighted, const float* dy, const float* x, float centre,
                   float shift, int64_t n);
  void (*row_sums_relu)(double* plain, double* weighted, const float* dy, const float* x,
                        float centre, float shift, float scale, float offset, int64_t n);
  void (*row_sums_through)(double* plain, double* weighted, float* d, const float* dy,
                           const float* y, const float* x, float centre, float shift, int64_t n);
  void (*columns_sums)(float* plain, float* weighted, const float* dy, const float* x,
                       const float* centre, const float* shift, int64_t n);
  void (*columns_sums_relu)(float* plain, float* weighted, const float* dy, const float* x,
                            const float* centre, const float* shift, const float* scale,
                            const float* offset, int64_t n);
  void (*columns_sums_through)(float* plain, float* weighted, float* d, const float* dy,
                               const float* y, const float* x, const float* centre,
                               const float* shift, int64_t n);
  /// dx = scale · (d - mean - (x - centre - shift) · slope)
  using Backward = void(float* dx, const float* dy, const float* x, const float* centre,
                        const float* shift, const float* scale, const float* offset,
                        const float* mean, const float* slope, int64_t n);
  Backward *row_backward, *row_backward_relu, *columns_backward, *columns_backward_relu;
};
LOCKSTEP_DECLARE_LOOPS(BatchNorm);

}  // namespace lockstep::cpu
