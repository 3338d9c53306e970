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
    Tensor one = dy[0];
    if (factor != 1) {
      one = like(dy[0]);
      kernel::scale(one, dy[0], factor);
    }
    Tensor dx = gradient_for(0, shape, one);
    kernel::fill(dx, 1);
    kernel::binary(dx, dx, one, kernel::Binary::multiply);  // reads `one` where it lies: no wait
    return {dx};
  }
};

Tensor scaled_sum(const Tensor& x, float factor) {
  Tensor y = floats(x, {});
  kernel::sum(y, x);
  if (factor != 1) kernel::scale(y, y, factor);
  return record<Sum>(y, {x}, [&](Sum& n) { n.shape = x.shape(), n.factor = factor; });
}

}  // namespace

Tensor sum(const Tensor& x) { return scaled_sum(x, 1); }

Tensor mean(const Tensor& x) {
  check(x.numel() > 0, "[ops.mean] expected at least one element, got {}", x);
  return scaled_sum(x, 1.0f / static_cast<float>(x.numel()));
}

}  // namespace lockstep::ops
