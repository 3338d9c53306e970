#pragma once
#include "core/dispatch.h"

#include <span>

/// One pass over a flat buffer per optimiser step. `factor` multiplies every gradient as it is read
/// (unscaling, averaging and clipping in one); gradients are not changed. Parameters and gradients
/// are of any floating dtype each; moments are f32.
namespace lockstep::kernel {

struct SgdStep {
  double lr, factor, momentum, dampening, weight_decay;  ///< L2 decay, added to the gradient
  bool nesterov, first;  ///< first: the momentum buffer starts as the gradient
  Tensor copy = {};      ///< f16 or bf16: the new parameters are stored here too; undefined: not
};
/// PyTorch's SGD. `velocity` may be undefined when momentum is 0.
inline constinit Kernel<void(const Tensor& param, const Tensor& velocity, const Tensor& grad,
                             const SgdStep&)>
    sgd_step{"sgd_step"};

/// Elements [begin, end) of flat buffers that are stepped alike.
struct StepRun {
  int64_t begin = 0, end = 0;
  double weight_decay = 0;
  int64_t step = 0;  ///< 1 for the first update
};

struct AdamStep {
  double lr, factor, beta1, beta2, eps;  ///< doubles: 1 - 0.999f is off by 1e-5
  double weight_decay = 0;
  bool decoupled =
      false;         ///< AdamW (Loshchilov & Hutter 2019): w ·= 1 - lr·wd, apart from the moments
  int64_t step = 1;  ///< 1 for the first update: bias correction
  Tensor copy = {};  ///< as in SgdStep
  /// In ascending order, each with a weight_decay and step of its own, in one pass; what lies
  /// between them is left alone. Empty: all elements are one run.
  std::span<const StepRun> runs = {};
};
/// Adam (Kingma & Ba 2015), PyTorch's form: denominator sqrt(v̂) + eps.
inline constinit Kernel<void(const Tensor& param, const Tensor& m, const Tensor& v,
                             const Tensor& grad, const AdamStep&)>
    adam_step{"adam_step"};

}  // namespace lockstep::kernel
