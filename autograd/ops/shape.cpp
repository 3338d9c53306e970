#include "autograd/ops/helpers.h"

namespace lockstep::ops {
namespace {

struct Reshape final : Node {
  Shape from;
  std::string_view name() const override { return "reshape"; }
  Tensors backward(const Tensors& dy) override { return {dy[0].reshape(from)}; }
};

struct Slice final : Node {
  Shape from;
  int64_t begin = 0, end = 0;
  std::string_view name() const override { return "slice"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dx = gradient_for(0, from, dy[0]);
    kernel::fill(dx, 0);
    kernel::cast(dx.slice(begin, end), dy[0]);
    return {dx};
  }
};

}  // namespace

Shape with_last(const Shape& shape, int64_t last) {
  std::array<int64_t, Shape::kMaxRank> dims;
  std::copy(shape.dims().begin(), shape.dims().end(), dims.begin());
  check(shape.rank() >= 1, "[ops.shape] expected at least one dimension, got a scalar");
  dims[shape.rank() - 1] = last;
  return Shape(std::span<const int64_t>(dims.data(), shape.rank()));
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  return record<Reshape>(x.reshape(shape), {x}, [&](Reshape& n) { n.from = x.shape(); });
}

Tensor flatten(const Tensor& x) {
  check(x.rank() >= 1, "[ops.flatten] expected at least one dimension, got {}", x);
  int64_t rest = 1;
  for (int64_t extent : x.shape().dims().subspan(1)) rest = checked_mul(rest, extent);
  return reshape(x, {x.size(0), rest});
}

Tensor slice(const Tensor& x, int64_t begin, int64_t end) {
  if (begin == 0 && x.rank() > 0 && end == x.size(0)) return x;
  return record<Slice>(x.slice(begin, end), {x},
                       [&](Slice& n) { n.from = x.shape(), n.begin = begin, n.end = end; });
}

}  // namespace lockstep::ops
