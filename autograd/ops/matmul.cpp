#include "core/kernels/matmul.h"

#include "autograd/ops/helpers.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"

namespace lockstep::ops {
namespace {

// Y = op(A) · op(B), op being the transposition or nothing. What is saved is what was multiplied: A
// and B in C.
struct Matmul final : Node {
  Saved a, b;
  Transposed transposed;
  std::string_view name() const override { return "matmul"; }
  Tensors backward(const Tensors& dy) override {
    const auto [ta, tb] = transposed;
    Tensor da, db;
    if (needs(0)) {
      da = gradient_for(0, a);
      if (ta)
        kernel::matmul(da, b, dy[0], {.trans_a = tb, .trans_b = true});  // dA = op(B) · dYᵀ
      else
        kernel::matmul(da, dy[0], b, {.trans_b = !tb});  // dA = dY · op(B)ᵀ
    }
    if (needs(1)) {
      db = gradient_for(1, b);
      if (tb)
        kernel::matmul(db, dy[0], a, {.trans_a = true, .trans_b = ta});  // dB = dYᵀ · op(A)
      else
        kernel::matmul(db, a, dy[0], {.trans_a = !ta});  // dB = op(A)ᵀ · dY
    }
    return {da, db};
  }
};

// Z = X Wᵀ + b, rows of X being samples: dX = dZ W, dW = dZᵀ X, db = Σ rows of dZ; Y = Z, or
// relu(Z) where `y` is saved. X and W in C are saved; gradients come out of the products in the
// dtypes of what they belong to.
struct Linear final : Node {
  Saved x, weight;  // x only where the weight's gradient is wanted, and the other way round
  Saved y;
  Shape x_shape, weight_shape;
  std::string_view name() const override { return y.defined() ? "linear_relu" : "linear"; }
  Tensors backward(const Tensors& gradients) override {
    Tensor dy = as_rows(gradients[0]), dx, dweight, dbias;
    if (needs(2)) dbias = gradient_for(2, {weight_shape[0]}, dy);
    if (y.defined()) {
      const Tensor dz = like(dy);
      kernel::bias_relu_backward(dz, dbias, dy, as_rows(y));
      dy = dz;
    } else if (needs(2)) {
      kernel::column_sum(dbias, dy);
    }
    if (needs(0)) {
      dx = gradient_for(0, x_shape, dy);
      kernel::matmul(as_rows(dx), dy, weight, {});
    }
    if (needs(1)) {
      dweight = gradient_for(1, weight_shape, dy);
      kernel::matmul(dweight, dy, as_rows(x), {.trans_a = true});
    }
    return {dx, dweight, dbias};
  }
};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Transposed transposed) {
  check(a.rank() == b.rank() && (a.rank() == 2 || a.rank() == 3),
        "[ops.matmul] operands; expected two matrices or two batches of them, got {} and {}", a, b);
  const auto [ta, tb] = transposed;
  const DType compute = compute_dtype(a, b);
  const Tensor low_a = cast_of(a, compute), low_b = cast_of(b, compute);
  const int64_t m = a.size(ta ? -1 : -2), k = a.size(ta ? -2 : -1);
  const int64_t n = b.size(tb ? -2 : -1);
  check(k == b.size(tb ? -1 : -2), "[ops.matmul] inner extents differ: {} and {} of {}{} · {}{}", k,
        b.size(tb ? -1 : -2), a.shape(), ta ? "ᵀ" : "", b.shape(), tb ? "ᵀ" : "");
  Tensor y =
      Tensor::empty(a.rank() == 2 ? Shape{m, n} : Shape{a.size(0), m, n}, compute, a.device());
  kernel::matmul(y, low_a, low_b, {.trans_a = ta, .trans_b = tb});
  return record<Matmul>(y, {a, b}, [&](Matmul& node) {
    // Shapes are taken from the saved operands, so both are kept.
    node.a = low_a, node.b = low_b, node.transposed = transposed;
  });
}

namespace {

enum class Then { nothing, relu };

Tensor apply(const Tensor& x, const Tensor& weight, const Tensor& bias, Then then) {
  check(weight.rank() == 2 && x.rank() >= 1 && x.size(-1) == weight.size(1),
        "[ops.linear] input; expected [..., {}] for a weight of {}, got {}",
        weight.rank() == 2 ? weight.size(1) : -1, weight.shape(), x.shape());
  const DType compute = compute_dtype(x, weight);
  const Tensor low_x = cast_of(x, compute), low_weight = cast_of(weight, compute);
  Tensor y = Tensor::empty(with_last(x.shape(), weight.size(0)), compute, x.device());
  kernel::matmul(as_rows(y), as_rows(low_x), low_weight,
                 {.trans_b = true, .bias = bias, .relu = then == Then::relu});
  return record<Linear>(y, {x, weight, bias}, [&](Linear& n) {
    n.x_shape = x.shape(), n.weight_shape = weight.shape();
    if (requires_grad(weight)) n.x = low_x;
    if (requires_grad(x)) n.weight = low_weight;
    if (then == Then::relu) n.y = y;
  });
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return apply(x, weight, bias, Then::nothing);
}

Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return apply(x, weight, bias, Then::relu);
}

}  // namespace lockstep::ops
