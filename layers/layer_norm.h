#pragma once
#include "autograd/ops.h"
#include "layers/init.h"
#include "layers/module.h"

namespace lockstep::layers {

struct LayerNormOptions {
  bool bias = true;
  float eps = 1e-5f;
};

/// Layer normalisation over the last dimension (Ba et al. 2016, arXiv:1607.06450). Parameters
/// "weight" (starts at 1) and "bias" (starts at 0).
class LayerNorm final : public Module {
 public:
  LayerNorm(Initialiser& init, int64_t width, const LayerNormOptions& options = {});
  Tensor operator()(const Tensor& x) const;
  /// The residual step and the normalisation after it in one pass: sum = x + residual, out =
  /// norm(sum).
  ops::ResidualNorm operator()(const Tensor& x, const Tensor& residual) const;

 private:
  Tensor weight_, bias_;
  float eps_;
};

}  // namespace lockstep::layers
