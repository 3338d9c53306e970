#include "core/kernels/reduce.h"

#include "autograd/ops/helpers.h"

namespace lockstep::ops {
namespace {

// y = factor · Σ x, so that dx = factor · dy everywhere.
struct Sum final : Node {
  Shape shape;
  float factor = 1;
  std::string_view name() const override { return factor == 1 ? "sum" : "mean"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dx = spread(dy[0], shape);
    if (factor != 1) kernel::scale(dx, dx, factor);
    return {dx};
  }
};

Tensor scaled_sum(const Tensor& x, float factor) {
  Tensor y = Tensor::empty({}, x.dtype(), x.device());
  kernel::sum(y, x);
  if (factor != 1) kernel::scale(y, y, factor);
  return record<Sum>(y, {x}, [&](Sum& n) { n.shape = x.shape(), n.factor = factor; });
}

}  // namespace

Tensor spread(const Tensor& dy, const Shape& shape) {
  Tensor x = full(shape, 1, dy.dtype(), dy.device());
  kernel::binary(x, x, dy,
                 kernel::Binary::multiply);  // reads dy where it lies: no wait for a device
  return x;
}

Tensor sum(const Tensor& x) { return scaled_sum(x, 1); }

Tensor mean(const Tensor& x) {
  check(x.numel() > 0, "[ops.mean] expected at least one element, got {}", describe(x));
  return scaled_sum(x, 1.0f / static_cast<float>(x.numel()));
}

}  // namespace lockstep::ops
