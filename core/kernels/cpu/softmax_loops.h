#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// One row of n >= 1 elements, but for the element-wise bce.
struct SoftmaxLoops {
  void (*softmax)(float* out, const float* x, int64_t n);
  void (*softmax_backward)(float* dx, const float* dy, const float* y, int64_t n);
  void (*cross_entropy)(float* loss, float* lse, const float* logits, int64_t target, int64_t n);
  void (*cross_entropy_backward)(float* dlogits, const float* logits, float lse, int64_t target,
                                 float dloss, int64_t n);
  void (*bce)(float* losses, const float* logits, const float* targets, int64_t n);
  void (*bce_backward)(float* dlogits, const float* logits, const float* targets, float dloss,
                       int64_t n);
};
LOCKSTEP_DECLARE_LOOPS(Softmax);

}  // namespace lockstep::cpu
