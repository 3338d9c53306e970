#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// A sum in double over n elements of any floating type, of which a norm reads all there are: these
/// are widened as they are read. The order of additions is the same for all types.
struct BlockSum {
  double (*f32)(const float* x, int64_t n);
  double (*f16)(const uint16_t* x, int64_t n);
  double (*bf16)(const uint16_t* x, int64_t n);
};

/// dx = dy where y > 0, 0 elsewhere, of rows that follow each other, all of one floating type;
/// line += Σ rows of dx, added as add_rows does. dx may be dy or y.
struct ReluBackward {
  void (*f32)(float* dx, float* line, const float* dy, const float* y, int64_t rows,
              int64_t columns);
  void (*f16)(uint16_t* dx, float* line, const uint16_t* dy, const uint16_t* y, int64_t rows,
              int64_t columns);
  void (*bf16)(uint16_t* dx, float* line, const uint16_t* dy, const uint16_t* y, int64_t rows,
               int64_t columns);
};

struct ReduceLoops {
  BlockSum sum, sum_of_squares;
  int64_t (*first_non_finite)(const float* x, int64_t n);  ///< -1: none
  /// The first of the largest, a NaN counting as larger than all; n >= 1.
  int64_t (*argmax)(const float* x, int64_t n);
  /// line[c] += Σ_r x[r · ld + c] for `rows` rows, four at a time.
  void (*add_rows)(float* line, const float* x, int64_t rows, int64_t columns, int64_t ld);
  ReluBackward relu_backward;
};
LOCKSTEP_DECLARE_LOOPS(Reduce);

}  // namespace lockstep::cpu
