#include "core/kernels/norm.h"

#include "core/kernels/cpu/column_sums.h"
#include "core/kernels/cpu/floats.h"
#include "core/kernels/cpu/norm_loops.h"

namespace lockstep::cpu {
namespace {

struct Rows {
  int64_t count, width;
};

// What the three kernels have in common; widths of 0 are refused, for their mean is nothing.
Rows rows_of(std::string_view kernel, const Tensor& x, const Tensor& mean, const Tensor& rstd,
             const Tensor& gamma, const Tensor& beta) {
  expect_floats(kernel, {&x});
  expect_dtype(kernel, "mean", mean, DType::f32);
  expect_dtype(kernel, "rstd", rstd, DType::f32);
  const Rows rows{x.shape().rows(), x.shape().last()};
  check(x.rank() >= 1 && rows.width >= 1,
        "[kernel.{}] expected rows of at least one element, got {}", kernel, x.shape());
  check(mean.numel() == rows.count && rstd.numel() == rows.count,
        "[kernel.{}] mean and rstd; expected {} elements, got {} and {}", kernel, rows.count,
        mean.numel(), rstd.numel());
  expect_float_vector(kernel, "gamma", gamma, rows.width);
  if (beta.defined()) expect_float_vector(kernel, "beta", beta, rows.width);
  return rows;
}

// `sum` and `residual` may be undefined, both.
void forward(Rows rows, const Tensor& out, const Tensor& sum, const Tensor& mean,
             const Tensor& rstd, const Tensor& x, const Tensor& residual, const Tensor& gamma,
             const Tensor& beta, float eps) {
  const FloatsIn in(x), added(residual);
  const FloatsOut to(out), total(sum);
  const Widened g(gamma), b(beta);
  float *m = mean.mutable_data<float>(), *r = rstd.mutable_data<float>();
  const auto& loops = LOCKSTEP_PICK_LOOPS(Norm);
  const int64_t width = rows.width, grain = row_grain(2 * width);
  const bool narrow = any_narrow(in, added, to, total);
  const RowRooms rooms(narrow, 4, width, rows.count, grain);
  parallel_for(rows.count, grain, [&](int64_t begin, int64_t end, int piece) {
    float *to_room = rooms.row(piece, 0), *total_room = rooms.row(piece, 1),
          *in_room = rooms.row(piece, 2), *added_room = rooms.row(piece, 3);
    Row<float> y = to.rows(begin * width, width, to_room),
               s = total.rows(begin * width, width, total_room);
    Row<const float> a = in.rows(begin * width, width, in_room),
                     c = added.rows(begin * width, width, added_room);
    for (int64_t n = begin; n < end; ++n, y.next(), s.next(), a.next(), c.next()) {
      if (narrow) {
        in.read(n * width, width, in_room);
        added.read(n * width, width, added_room);
      }
      loops.layer_norm(y.at, s.at, m + n, r + n, a.at, c.at, g.data(), b.data(), eps, width);
      if (narrow) {
        to.write(n * width, width, to_room);
        total.write(n * width, width, total_room);
      }
    }
  });
}

void layer_norm(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                const Tensor& gamma, const Tensor& beta, float eps) {
  expect_same_floats("layer_norm", {&x, &out});
  const Rows rows = rows_of("layer_norm", x, mean, rstd, gamma, beta);
  forward(rows, out, Tensor(), mean, rstd, x, Tensor(), gamma, beta, eps);
}

void residual_layer_norm(const Tensor& out, const Tensor& sum, const Tensor& mean,
                         const Tensor& rstd, const Tensor& x, const Tensor& residual,
                         const Tensor& gamma, const Tensor& beta, float eps) {
  expect_same_floats("residual_layer_norm", {&x, &out, &sum, &residual});
  check(!sum.is(out), "[kernel.residual_layer_norm] sum and out must be two tensors");
  const Rows rows = rows_of("residual_layer_norm", x, mean, rstd, gamma, beta);
  forward(rows, out, sum, mean, rstd, x, residual, gamma, beta, eps);
}

void layer_norm_backward(const Tensor& dx, const Tensor& dgamma, const Tensor& dbeta,
                         const Tensor& dy, const Tensor& dsum, const Tensor& x, const Tensor& mean,
                         const Tensor& rstd, const Tensor& gamma) {
  expect_same_floats("layer_norm_backward", {&x, &dx, &dy});
  if (dsum.defined()) expect_same_floats("layer_norm_backward", {&x, &dsum});
  const Rows rows = rows_of("layer_norm_backward", x, mean, rstd, gamma, dbeta);
  const int64_t width = rows.width, grain = row_grain(3 * width);
  expect_float_vector("layer_norm_backward", "dgamma", dgamma, width);
  const FloatsIn d(dy), straight(dsum), in(x);
  const FloatsOut to(dx);
  const Widened g(gamma);
  const Rounded dg(dgamma), db(dbeta);
  const float *m = mean.data<float>(), *r = rstd.data<float>();
  const auto& loops = LOCKSTEP_PICK_LOOPS(Norm);
  const bool narrow = any_narrow(d, straight, in, to);
  const RowRooms rooms(narrow, 4, width, rows.count, grain);
  ColumnSums sums(rows.count, 2 * width, grain);  // dgamma, then dbeta
  parallel_for(rows.count, grain, [&](int64_t begin, int64_t end, int piece) {
    float* line = sums.line(piece);
    float *to_room = rooms.row(piece, 0), *d_room = rooms.row(piece, 1),
          *straight_room = rooms.row(piece, 2), *in_room = rooms.row(piece, 3);
    Row<float> dx_row = to.rows(begin * width, width, to_room);
    Row<const float> d_row = d.rows(begin * width, width, d_room),
                     straight_row = straight.rows(begin * width, width, straight_room),
                     x_row = in.rows(begin * width, width, in_room);
    for (int64_t n = begin; n < end; ++n) {
      if (narrow) {
        d.read(n * width, width, d_room);
        straight.read(n * width, width, straight_room);
        in.read(n * width, width, in_room);
      }
      loops.layer_norm_backward(dx_row.at, line, line + width, d_row.at, straight_row.at, x_row.at,
                                m[n], r[n], g.data(), width);
      if (narrow) to.write(n * width, width, to_room);
      sums.row_done(piece);
      dx_row.next(), d_row.next(), straight_row.next(), x_row.next();
    }
  });
  sums.store(dg.data(), 0, width);
  dg.store();
  if (!dbeta.defined()) return;
  sums.store(db.data(), width, 2 * width);
  db.store();
}

const Provide provided[] = {
    {kernel::layer_norm, DeviceType::cpu, layer_norm},
    {kernel::residual_layer_norm, DeviceType::cpu, residual_layer_norm},
    {kernel::layer_norm_backward, DeviceType::cpu, layer_norm_backward},
};

}  // namespace
}  // namespace lockstep::cpu
