#include "layers/attention.h"

#include <cmath>

#include "autograd/ops.h"

namespace lockstep::layers {
namespace {

int checked_heads(int64_t width, int heads) {
  check(heads >= 1 && width % heads == 0,
        "[layers.attention] heads; expected a divisor of the width {}, got {}", width, heads);
  return heads;
}

}  // namespace

WeightInit residual_init(WeightInit init, int64_t layers) {
  check(init.rule == WeightInit::Rule::fixed && layers >= 1,
        "[layers.init] a residual projection wants a fixed standard deviation and at least 1 "
        "layer, got {}",
        layers);
  init.sd /= std::sqrt(2.0 * static_cast<double>(layers));
  return init;
}

CausalSelfAttention::CausalSelfAttention(Initialiser& init, int64_t width,
                                         const AttentionOptions& options)
    : heads_(checked_heads(width, options.heads)),
      qkv_(init, width, checked_mul(3, width), {.bias = options.bias, .init = options.init}),
      proj_(init, width, width, {.bias = options.bias, .init = options.projection_init}) {
  add_child("qkv", qkv_);
  add_child("proj", proj_);
}

Tensor CausalSelfAttention::operator()(const Tensor& x, const Tensor& lengths) const {
  return proj_(ops::attention(qkv_(x), {.heads = heads_, .causal = true, .lengths = lengths}));
}

}  // namespace lockstep::layers
