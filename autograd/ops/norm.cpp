#include "core/kernels/norm.h"

#include "autograd/ops/helpers.h"

namespace lockstep::ops {
namespace {

// The mean and 1/deviation of each row, kept from forward for backward.
struct RowStatistics {
  Tensor mean, rstd;
  explicit RowStatistics(const Tensor& x)
      : mean(floats(x, {x.shape().rows()})), rstd(floats(x, {x.shape().rows()})) {}
};

struct LayerNorm final : Node {
  Saved x, mean, rstd, gamma;
  std::string_view name() const override { return "layer_norm"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dx = gradient_for(0, x), dgamma = gradient_for(1, gamma), dbeta;
    if (needs(2)) dbeta = gradient_for(2, gamma);
    kernel::layer_norm_backward(as_rows(dx), dgamma, dbeta, as_rows(dy[0]), {}, as_rows(x), mean,
                                rstd, gamma);
    return {dx, dgamma, dbeta};
  }
};

// sum = x + residual goes on as the residual stream, so that its own gradient arrives here too and
// is added in the same pass: dx = dresidual = dsum + (gradient through the normalisation).
struct ResidualLayerNorm final : Node {
  Saved sum, mean, rstd, gamma;
  std::string_view name() const override { return "residual_layer_norm"; }
  Tensors backward(const Tensors& dy) override {
    const Tensor &dsum = dy[0], &dout = dy[1];
    if (!dout.defined()) return {as_gradient(*this, 0, dsum), as_gradient(*this, 1, dsum)};
    // One tensor for both, so not gradient_for: where they differ in dtype, one is rounded from it.
    const DType wide = promote(gradient_dtype(needs(0) ? 0 : 1), gradient_dtype(needs(1) ? 1 : 0));
    Tensor dx = like(sum, wide), dgamma = gradient_for(2, gamma), dbeta;
    if (needs(3)) dbeta = gradient_for(3, gamma);
    kernel::layer_norm_backward(as_rows(dx), dgamma, dbeta, as_rows(dout),
                                dsum.defined() ? as_rows(dsum) : dsum, as_rows(sum), mean, rstd,
                                gamma);
    return {as_gradient(*this, 0, dx), as_gradient(*this, 1, dx), dgamma, dbeta};
  }
};

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, float eps) {
  Tensor y = like(x, compute_dtype(x, gamma));
  const RowStatistics rows(x);
  kernel::layer_norm(as_rows(y), rows.mean, rows.rstd, as_rows(x), gamma, beta, eps);
  return record<LayerNorm>(y, {x, gamma, beta}, [&](LayerNorm& n) {
    n.x = x, n.mean = rows.mean, n.rstd = rows.rstd, n.gamma = gamma;
  });
}

ResidualNorm residual_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& gamma,
                                 const Tensor& beta, float eps) {
  Tensor sum = like(x, promote(x.dtype(), residual.dtype()));
  Tensor out = like(x, compute_dtype(sum, gamma));
  const RowStatistics rows(x);
  kernel::residual_layer_norm(as_rows(out), as_rows(sum), rows.mean, rows.rstd, as_rows(x),
                              as_rows(residual), gamma, beta, eps);
  record<ResidualLayerNorm>({&sum, &out}, {x, residual, gamma, beta}, [&](ResidualLayerNorm& n) {
    n.sum = sum, n.mean = rows.mean, n.rstd = rows.rstd, n.gamma = gamma;
  });
  return {sum, out};
}

}  // namespace lockstep::ops
