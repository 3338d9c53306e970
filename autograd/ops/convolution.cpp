#include "core/kernels/convolution.h"

#include "autograd/ops/helpers.h"

namespace lockstep::ops {
namespace {

// X and W in C are saved, each where the other's gradient is wanted.
struct Conv2d final : Node {
  Saved x, weight;
  Shape x_shape, weight_shape;
  kernel::Convolution options;
  std::string_view name() const override { return "conv2d"; }
  Tensors backward(const Tensors& gradients) override {
    const Tensor& dy = gradients[0];
    Tensor dx, dweight, dbias;
    if (needs(0)) {
      dx = gradient_for(0, x_shape, dy);
      kernel::conv2d_backward_input(dx, dy, weight, options);
    }
    if (needs(2)) dbias = gradient_for(2, {weight_shape[0]}, dy);
    if (needs(1) || needs(2)) {
      dweight = needs(1) ? gradient_for(1, weight_shape, dy) : floats(dy, weight_shape);
      kernel::conv2d_backward_weight(dweight, dbias, dy, x, options);
    }
    return {dx, needs(1) ? dweight : Tensor(), dbias};
  }
};

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const kernel::Convolution& options) {
  const DType compute = compute_dtype(x, weight);
  const Tensor low_x = cast_of(x, compute), low_weight = cast_of(weight, compute);
  Tensor y =
      Tensor::empty(kernel::conv2d_shape(x.shape(), weight.shape(), options), compute, x.device());
  kernel::conv2d(y, low_x, low_weight, bias, options);
  return record<Conv2d>(y, {x, weight, bias}, [&](Conv2d& n) {
    if (requires_grad(weight) || (bias.defined() && requires_grad(bias))) n.x = low_x;
    if (requires_grad(x)) n.weight = low_weight;
    n.x_shape = x.shape(), n.weight_shape = weight.shape(), n.options = options;
  });
}

}  // namespace lockstep::ops
