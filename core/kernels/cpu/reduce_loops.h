#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

struct ReduceLoops {
  double (*sum)(const float* x, int64_t n);
  double (*sum_of_squares)(const float* x, int64_t n);
  int64_t (*first_non_finite)(const float* x, int64_t n);  ///< -1: none
  /// The first of the largest, a NaN counting as larger than all; n >= 1.
  int64_t (*argmax)(const float* x, int64_t n);
  /// line[c] += Σ_r x[r · ld + c] for `rows` rows, four at a time.
  void (*add_rows)(float* line, const float* x, int64_t rows, int64_t columns, int64_t ld);
  /// out[i] = ((in[0][i] + in[1][i]) + in[2][i]) + … for i in [begin, end); count >= 1.
  void (*fold_f32)(float* out, const void* const* in, int count, int64_t begin, int64_t end);
  void (*fold_f16)(uint16_t* out, const void* const* in, int count, int64_t begin, int64_t end);
  void (*fold_bf16)(uint16_t* out, const void* const* in, int count, int64_t begin, int64_t end);
  void (*fold_i32)(uint32_t* out, const void* const* in, int count, int64_t begin, int64_t end);
  void (*fold_i64)(uint64_t* out, const void* const* in, int count, int64_t begin, int64_t end);
};
LOCKSTEP_DECLARE_LOOPS(Reduce);

}  // namespace lockstep::cpu
