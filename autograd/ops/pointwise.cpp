#include <algorithm>

#include "autograd/ops/helpers.h"

namespace lockstep::ops {
namespace {

using kernel::Binary;

// Dimensions aligned at the end; extent 1 stretches.
Shape broadcast(const Tensor& a, const Tensor& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::array<int64_t, Shape::kMaxRank> dims;
  for (int i = 1; i <= rank; ++i) {
    const int64_t m = i <= a.rank() ? a.size(-i) : 1, n = i <= b.rank() ? b.size(-i) : 1;
    check(m == n || m == 1 || n == 1,
          "[ops.broadcast] shapes {} and {} do not fit; expected equal extents or 1", a.shape(),
          b.shape());
    dims[rank - i] = m == 1 ? n : m;
  }
  return Shape(std::span<const int64_t>(dims.data(), rank));
}

Tensor apply(const Tensor& a, const Tensor& b, Binary f) {
  Tensor y = Tensor::empty(a.shape() == b.shape() ? a.shape() : broadcast(a, b),
                           promote(a.dtype(), b.dtype()), a.device());
  kernel::binary(y, a, b, f);
  return y;
}

// Of input i, which has `shape`: the backward of broadcasting sums over what was stretched.
Tensor unbroadcast(const Node& node, int i, const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) return as_gradient(node, i, dy);
  Tensor dx = Tensor::empty(shape, node.gradient_dtype(i), dy.device());
  kernel::sum_to(dx, dy);
  return dx;
}

// The same of dy ∘ x, which is not rounded before it is summed.
Tensor unbroadcast(const Node& node, int i, const Tensor& dy, Binary f, const Tensor& x,
                   const Shape& shape) {
  const bool same = dy.shape() == shape;
  const Tensor dx = like(dy, same ? node.gradient_dtype(i) : DType::f32);
  kernel::binary(dx, dy, x, f);
  return same ? dx : unbroadcast(node, i, dx, shape);
}

struct Add final : Node {
  Shape a, b;
  std::string_view name() const override { return "add"; }
  Tensors backward(const Tensors& dy) override {
    Tensor da, db;
    if (needs(0)) da = unbroadcast(*this, 0, dy[0], a);
    if (needs(1)) db = unbroadcast(*this, 1, dy[0], b);
    return {da, db};
  }
};

struct Subtract final : Node {
  Shape a, b;
  std::string_view name() const override { return "subtract"; }
  Tensors backward(const Tensors& dy) override {
    Tensor da, db;
    if (needs(0)) da = unbroadcast(*this, 0, dy[0], a);
    if (needs(1)) {
      const Tensor sum = dy[0].shape() == b ? dy[0] : unbroadcast(*this, 1, dy[0], b);
      db = gradient_for(1, sum);
      kernel::scale(db, sum, -1.0f);
    }
    return {da, db};
  }
};

struct Multiply final : Node {
  Saved a, b;  // each only where the other's gradient is wanted
  Shape a_shape, b_shape;
  std::string_view name() const override { return "multiply"; }
  Tensors backward(const Tensors& dy) override {
    Tensor da, db;
    if (needs(0)) da = unbroadcast(*this, 0, dy[0], Binary::multiply, b, a_shape);
    if (needs(1)) db = unbroadcast(*this, 1, dy[0], Binary::multiply, a, b_shape);
    return {da, db};
  }
};

struct Divide final : Node {
  Saved b, y;
  Shape a_shape;
  std::string_view name() const override { return "divide"; }
  Tensors backward(const Tensors& dy) override {
    Tensor da, db;
    const Tensor over = floats(dy[0], dy[0].shape());  // dy / b
    kernel::binary(over, dy[0], b, Binary::divide);
    if (needs(1)) {  // -dy / b · y
      const Tensor negative = like(over);
      kernel::scale(negative, over, -1.0f);
      db = unbroadcast(*this, 1, negative, Binary::multiply, y, b.get().shape());
    }
    if (needs(0)) da = unbroadcast(*this, 0, over, a_shape);
    return {da, db};
  }
};

struct Scale final : Node {
  float factor = 1;
  std::string_view name() const override { return "scale"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dx = gradient_for(0, dy[0]);
    kernel::scale(dx, dy[0], factor);
    return {dx};
  }
};

struct Unary final : Node {
  Saved x, y;
  kernel::Unary f{};
  std::string_view name() const override {
    constexpr std::string_view names[] = {"exp",  "log",    "sqrt",      "tanh",
                                          "relu", "square", "reciprocal"};
    return names[static_cast<int>(f)];
  }
  Tensors backward(const Tensors& dy) override {
    Tensor dx = gradient_for(0, x);
    kernel::unary_backward(dx, dy[0], x, y, f);
    return {dx};
  }
};

struct Gelu final : Node {
  Saved x;
  kernel::Gelu kind{};
  std::string_view name() const override { return "gelu"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dx = gradient_for(0, x);
    kernel::gelu_backward(dx, dy[0], x, kind);
    return {dx};
  }
};

struct BiasGelu final : Node {
  Saved x, bias;
  kernel::Gelu kind{};
  std::string_view name() const override { return "bias_gelu"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dx = gradient_for(0, x), dbias;
    if (needs(1)) dbias = gradient_for(1, bias);
    kernel::bias_gelu_backward(as_rows(dx), dbias, as_rows(dy[0]), as_rows(x), bias, kind);
    return {dx, dbias};
  }
};

struct Dropout final : Node {
  float p = 0;
  kernel::DropoutKey key{};
  std::string_view name() const override { return "dropout"; }
  Tensors backward(const Tensors& dy) override {  // the same mask, drawn again
    Tensor dx = gradient_for(0, dy[0]);
    kernel::dropout(dx, dy[0], p, key);
    return {dx};
  }
};

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  return record<Add>(apply(a, b, Binary::add), {a, b},
                     [&](Add& n) { n.a = a.shape(), n.b = b.shape(); });
}

Tensor subtract(const Tensor& a, const Tensor& b) {
  return record<Subtract>(apply(a, b, Binary::subtract), {a, b},
                          [&](Subtract& n) { n.a = a.shape(), n.b = b.shape(); });
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  return record<Multiply>(apply(a, b, Binary::multiply), {a, b}, [&](Multiply& n) {
    n.a_shape = a.shape(), n.b_shape = b.shape();
    if (requires_grad(b)) n.a = a;
    if (requires_grad(a)) n.b = b;
  });
}

Tensor divide(const Tensor& a, const Tensor& b) {
  Tensor y = apply(a, b, Binary::divide);
  return record<Divide>(y, {a, b}, [&](Divide& n) {
    n.a_shape = a.shape(), n.b = b;
    if (requires_grad(b)) n.y = y;
  });
}

Tensor scale(const Tensor& x, float factor) {
  Tensor y = like(x);
  kernel::scale(y, x, factor);
  return record<Scale>(y, {x}, [&](Scale& n) { n.factor = factor; });
}

Tensor unary(const Tensor& x, kernel::Unary f) {
  Tensor y = like(x);
  kernel::unary(y, x, f);
  return record<Unary>(y, {x}, [&](Unary& n) { n.x = x, n.y = y, n.f = f; });
}

Tensor gelu(const Tensor& x, kernel::Gelu kind) {
  Tensor y = like(x);
  kernel::gelu(y, x, kind);
  return record<Gelu>(y, {x}, [&](Gelu& n) { n.x = x, n.kind = kind; });
}

Tensor bias_gelu(const Tensor& x, const Tensor& bias, kernel::Gelu kind) {
  Tensor y = like(x);
  kernel::bias_gelu(as_rows(y), as_rows(x), bias, kind);
  return record<BiasGelu>(y, {x, bias},
                          [&](BiasGelu& n) { n.x = x, n.bias = bias, n.kind = kind; });
}

Tensor dropout(const Tensor& x, float p, kernel::DropoutKey key) {
  check(p >= 0 && p < 1, "[ops.dropout] probability; expected 0 <= p < 1, got {}", p);
  if (p == 0) return x;
  Tensor y = like(x);
  kernel::dropout(y, x, p, key);
  return record<Dropout>(y, {x}, [&](Dropout& n) { n.p = p, n.key = key; });
}

}  // namespace lockstep::ops
