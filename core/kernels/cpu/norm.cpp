#include "core/kernels/norm.h"

#include "core/kernels/cpu/column_sums.h"
#include "core/kernels/cpu/host.h"
#include "core/kernels/cpu/norm_loops.h"

namespace lockstep::cpu {
namespace {

struct Rows {
  int64_t count, width;
};

// What the three kernels have in common; widths of 0 are refused, for their mean is nothing.
Rows rows_of(std::string_view kernel, const Tensor& x, const Tensor& mean, const Tensor& rstd,
             const Tensor& gamma, const Tensor& beta) {
  expect_f32(kernel, {&x, &mean, &rstd});
  const Rows rows{x.shape().rows(), x.shape().last()};
  check(x.rank() >= 1 && rows.width >= 1,
        "[kernel.{}] expected rows of at least one element, got {}", kernel, to_string(x.shape()));
  check(mean.numel() == rows.count && rstd.numel() == rows.count,
        "[kernel.{}] mean and rstd; expected {} elements, got {} and {}", kernel, rows.count,
        mean.numel(), rstd.numel());
  expect_vector(kernel, "gamma", gamma, rows.width);
  if (beta.defined()) expect_vector(kernel, "beta", beta, rows.width);
  return rows;
}

void forward(Rows rows, const Tensor& out, float* sum, const Tensor& mean, const Tensor& rstd,
             const float* x, const float* residual, const Tensor& gamma, const Tensor& beta,
             float eps) {
  const float *g = gamma.data<float>(), *b = beta.defined() ? beta.data<float>() : nullptr;
  float *to = out.mutable_data<float>(), *m = mean.mutable_data<float>(),
        *r = rstd.mutable_data<float>();
  const auto& loops = LOCKSTEP_PICK_LOOPS(Norm);
  parallel_for(rows.count, row_grain(2 * rows.width), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t at = n * rows.width;
      loops.layer_norm(to + at, sum ? sum + at : nullptr, m + n, r + n, x + at,
                       residual ? residual + at : nullptr, g, b, eps, rows.width);
    }
  });
}

void layer_norm(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                const Tensor& gamma, const Tensor& beta, float eps) {
  expect_same("layer_norm", {&x, &out});
  const Rows rows = rows_of("layer_norm", x, mean, rstd, gamma, beta);
  forward(rows, out, nullptr, mean, rstd, x.data<float>(), nullptr, gamma, beta, eps);
}

void residual_layer_norm(const Tensor& out, const Tensor& sum, const Tensor& mean,
                         const Tensor& rstd, const Tensor& x, const Tensor& residual,
                         const Tensor& gamma, const Tensor& beta, float eps) {
  expect_same("residual_layer_norm", {&x, &out, &sum, &residual});
  check(!sum.is(out), "[kernel.residual_layer_norm] sum and out must be two tensors");
  const Rows rows = rows_of("residual_layer_norm", x, mean, rstd, gamma, beta);
  const float *from = x.data<float>(), *added = residual.data<float>();
  forward(rows, out, sum.mutable_data<float>(), mean, rstd, from, added, gamma, beta, eps);
}

void layer_norm_backward(const Tensor& dx, const Tensor& dgamma, const Tensor& dbeta,
                         const Tensor& dy, const Tensor& dsum, const Tensor& x, const Tensor& mean,
                         const Tensor& rstd, const Tensor& gamma) {
  expect_same("layer_norm_backward", {&x, &dx, &dy});
  if (dsum.defined()) expect_same("layer_norm_backward", {&x, &dsum});
  const Rows rows = rows_of("layer_norm_backward", x, mean, rstd, gamma, dbeta);
  const int64_t width = rows.width, grain = row_grain(3 * width);
  expect_vector("layer_norm_backward", "dgamma", dgamma, width);
  const float *d = dy.data<float>(), *s = dsum.defined() ? dsum.data<float>() : nullptr,
              *in = x.data<float>(), *m = mean.data<float>(), *r = rstd.data<float>(),
              *g = gamma.data<float>();
  float* to = dx.mutable_data<float>();
  const auto& loops = LOCKSTEP_PICK_LOOPS(Norm);
  ColumnSums sums(rows.count, 2 * width, grain);  // dgamma, then dbeta
  parallel_for(rows.count, grain, [&](int64_t begin, int64_t end, int piece) {
    float* line = sums.line(piece);
    for (int64_t n = begin; n < end; ++n) {
      const int64_t at = n * width;
      loops.layer_norm_backward(to + at, line, line + width, d + at, s ? s + at : nullptr, in + at,
                                m[n], r[n], g, width);
      sums.row_done(piece);
    }
  });
  sums.store(dgamma.mutable_data<float>(), 0, width);
  if (dbeta.defined()) sums.store(dbeta.mutable_data<float>(), width, 2 * width);
}

const Provide provided[] = {
    {kernel::layer_norm, DeviceType::cpu, layer_norm},
    {kernel::residual_layer_norm, DeviceType::cpu, residual_layer_norm},
    {kernel::layer_norm_backward, DeviceType::cpu, layer_norm_backward},
};

}  // namespace
}  // namespace lockstep::cpu
