#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// One step's constants, worked out in double and rounded once.
struct SgdConstants {
  float lr, factor, momentum, fresh, decay;
};  ///< fresh = 1 - dampening
enum class SgdForm { plain, first, momentum, nesterov, first_nesterov };

struct AdamConstants {
  float factor, beta2, fresh1, fresh2;  ///< fresh = 1 - beta
  float step_size, scale2, eps;         ///< lr / (1 - beta1^t); 1 / sqrt(1 - beta2^t)
  float l2, keep;                       ///< added to the gradient; w is multiplied by keep first
};

struct OptimLoops {
  void (*sgd)(float* w, float* velocity, const float* grad, int64_t n, SgdConstants, SgdForm);
  void (*adam)(float* w, float* m, float* v, const float* grad, int64_t n, AdamConstants);
};
LOCKSTEP_DECLARE_LOOPS(Optim);

}  // namespace lockstep::cpu
