#include "layers/layer_norm.h"

namespace lockstep::layers {

LayerNorm::LayerNorm(Initialiser& init, int64_t width, const LayerNormOptions& options)
    : eps_(options.eps) {
  check(width >= 1, "[layers.layer_norm] expected a width of at least 1, got {}", width);
  weight_ = init.constant({width}, 1);
  add_parameter("weight", weight_, Decay::no);
  if (!options.bias) return;
  bias_ = init.constant({width}, 0);
  add_parameter("bias", bias_, Decay::no);
}

Tensor LayerNorm::operator()(const Tensor& x) const {
  return ops::layer_norm(x, weight_, bias_, eps_);
}

ops::ResidualNorm LayerNorm::operator()(const Tensor& x, const Tensor& residual) const {
  return ops::residual_layer_norm(x, residual, weight_, bias_, eps_);
}

}  // namespace lockstep::layers
