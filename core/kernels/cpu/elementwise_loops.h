#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

enum class BinaryOp { add, subtract, multiply, divide };
enum class UnaryOp { exp, log, sqrt, tanh, relu, square, reciprocal };
enum class GeluForm { exact, tanh };

/// Loops over n contiguous floats. An output may be one of the inputs, but not overlap it
/// otherwise.
struct ElementwiseLoops {
  void (*fill)(float* out, float value, int64_t n);
  /// A step of 0 reads the same element throughout.
  void (*binary)(float* out, const float* a, int64_t step_a, const float* b, int64_t step_b,
                 int64_t n, BinaryOp);
  void (*unary)(float* out, const float* x, int64_t n, UnaryOp);
  void (*unary_backward)(float* dx, const float* dy, const float* x, const float* y, int64_t n,
                         UnaryOp);
  void (*scale)(float* out, const float* x, float factor, int64_t n);
  void (*add_scaled)(float* out, const float* x, float factor, int64_t n);
  void (*gelu)(float* out, const float* x, int64_t n, GeluForm);
  void (*gelu_backward)(float* dx, const float* dy, const float* x, int64_t n, GeluForm);
  /// One row: bias runs along with x.
  void (*bias_gelu)(float* out, const float* x, const float* bias, int64_t n, GeluForm);
  /// One row; also adds dx to dbias.
  void (*bias_gelu_backward)(float* dx, float* dbias, const float* dy, const float* x,
                             const float* bias, int64_t n, GeluForm);
};
LOCKSTEP_DECLARE_LOOPS(Elementwise);

}  // namespace lockstep::cpu
