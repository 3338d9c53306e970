#include "core/kernels/pooling.h"

#include "autograd/ops/helpers.h"

namespace lockstep::ops {
namespace {

struct MaxPool final : Node {
  Saved places;
  Shape x_shape;
  kernel::Pooling options;
  std::string_view name() const override { return "max_pool"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dx = gradient_for(0, x_shape, dy[0]);
    kernel::max_pool_backward(dx, dy[0], places, options);
    return {dx};
  }
};

struct AveragePool final : Node {
  Shape x_shape;
  kernel::Pooling options;
  kernel::Divisor divisor = kernel::Divisor::image;
  std::string_view name() const override { return "average_pool"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dx = gradient_for(0, x_shape, dy[0]);
    kernel::average_pool_backward(dx, dy[0], options, divisor);
    return {dx};
  }
};

}  // namespace

Tensor max_pool(const Tensor& x, const kernel::Pooling& options) {
  const Shape shape = kernel::pool_shape(x.shape(), options);
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  const Tensor places = requires_grad(x) ? Tensor::empty(shape, DType::i32, x.device()) : Tensor();
  kernel::max_pool(y, places, x, options);
  return record<MaxPool>(
      y, {x}, [&](MaxPool& n) { n.places = places, n.x_shape = x.shape(), n.options = options; });
}

Tensor average_pool(const Tensor& x, const kernel::Pooling& options, kernel::Divisor divisor) {
  Tensor y = Tensor::empty(kernel::pool_shape(x.shape(), options), x.dtype(), x.device());
  kernel::average_pool(y, x, options, divisor);
  return record<AveragePool>(y, {x}, [&](AveragePool& n) {
    n.x_shape = x.shape(), n.options = options, n.divisor = divisor;
  });
}

Tensor global_average_pool(const Tensor& x) {
  check(x.rank() == 4, "[ops.global_average_pool] expected images [N, C, rows, columns], got {}",
        x);
  const Plane all{x.size(2), x.size(3)};
  return flatten(average_pool(x, {.window = all, .stride = all}, kernel::Divisor::image));
}

}  // namespace lockstep::ops
