#include "layers/mlp.h"

#include "autograd/ops.h"

namespace lockstep::layers {
namespace {

int64_t hidden_width(int64_t width, const MlpOptions& options) {
  return options.hidden > 0 ? options.hidden : checked_mul(4, width);
}

}  // namespace

Mlp::Mlp(Initialiser& init, int64_t width, const MlpOptions& options)
    : gelu_(options.gelu),
      fc_(init, width, hidden_width(width, options), {.bias = options.bias, .init = options.init}),
      out_(init, hidden_width(width, options), width,
           {.bias = options.bias, .init = options.projection_init}) {
  add_child("fc", fc_);
  add_child("out", out_);
}

Tensor Mlp::operator()(const Tensor& x) const {
  if (!fc_.bias().defined()) return out_(ops::gelu(fc_(x), gelu_));
  // The product without its bias; bias and GELU in one pass.
  return out_(ops::bias_gelu(ops::linear(x, fc_.weight()), fc_.bias(), gelu_));
}

}  // namespace lockstep::layers
