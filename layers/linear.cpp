#include "layers/linear.h"

#include "autograd/ops.h"

namespace lockstep::layers {

Linear::Linear(Initialiser& init, int64_t in, int64_t out, const LinearOptions& options) {
  check(in >= 1 && out >= 1, "[layers.linear] expected widths of at least 1, got {} -> {}", in,
        out);
  const Shape shape{out, in};
  weight_ = init.weight(shape, matrix_fans(shape), options.init);
  add_parameter("weight", weight_, Decay::yes);
  if (!options.bias) return;
  bias_ = init.constant({out}, 0);
  add_parameter("bias", bias_, Decay::no);
}

Tensor Linear::operator()(const Tensor& x) const { return ops::linear(x, weight_, bias_); }

}  // namespace lockstep::layers
