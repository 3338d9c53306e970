#include "core/kernels/elementwise.h"

#include "core/kernels/cpu/column_sums.h"
#include "core/kernels/cpu/elementwise_loops.h"
#include "core/kernels/cpu/floats.h"

namespace lockstep::cpu {
namespace {

const ElementwiseLoops& loops() { return LOCKSTEP_PICK_LOOPS(Elementwise); }
constexpr int64_t kGeluGrain = kGrain / 4;
GeluForm form_of(kernel::Gelu g) {
  return g == kernel::Gelu::exact ? GeluForm::exact : GeluForm::tanh;
}

void gelu(const Tensor& out, const Tensor& x, kernel::Gelu g) {
  expect_same_floats("gelu", {&x, &out});
  map_floats(
      kGeluGrain, out,
      [with = loops().gelu, form = form_of(g)](float* to, const float* in, int64_t n) {
        with(to, in, n, form);
      },
      x);
}

void gelu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, kernel::Gelu g) {
  expect_same_floats("gelu_backward", {&x, &dy, &dx});
  map_floats(
      kGeluGrain, dx,
      [with = loops().gelu_backward, form = form_of(g)](float* to, const float* d, const float* in,
                                                        int64_t n) { with(to, d, in, n, form); },
      dy, x);
}

void bias_gelu(const Tensor& out, const Tensor& x, const Tensor& bias, kernel::Gelu g) {
  expect_same_floats("bias_gelu", {&x, &out});
  const int64_t columns = x.shape().last(), rows = x.shape().rows();
  expect_float_vector("bias_gelu", "bias", bias, columns);
  const FloatsIn in(x);
  const FloatsOut to(out);
  const Widened b(bias);
  const auto& with = loops();
  parallel_for(rows, row_grain(4 * columns), [&](int64_t begin, int64_t end) {
    Room value, sum;
    for (int64_t r = begin; r < end; ++r)
      in_rooms(any_narrow(in, to), 0, columns, [&](int64_t c, int64_t n) {
        const int64_t at = r * columns + c;
        with.bias_gelu(to.place(at, value), in.read(at, n, sum), b.data() + c, n, form_of(g));
        to.write(at, n, value);
      });
  });
}

void bias_gelu_backward(const Tensor& dx, const Tensor& dbias, const Tensor& dy, const Tensor& x,
                        const Tensor& bias, kernel::Gelu g) {
  expect_same_floats("bias_gelu_backward", {&x, &dy, &dx});
  const int64_t columns = x.shape().last(), rows = x.shape().rows();
  expect_float_vector("bias_gelu_backward", "bias", bias, columns);
  if (dbias.defined()) expect_float_vector("bias_gelu_backward", "dbias", dbias, columns);
  const FloatsIn in(x), d(dy);
  const FloatsOut to(dx);
  const Widened b(bias);
  const Rounded db(dbias);
  const auto& with = loops();
  ColumnSums sums(rows, columns, row_grain(4 * columns));
  parallel_for(rows, row_grain(4 * columns), [&](int64_t begin, int64_t end, int piece) {
    Room slope, arriving, sum;
    for (int64_t r = begin; r < end; ++r) {
      in_rooms(any_narrow(in, d, to), 0, columns, [&](int64_t c, int64_t n) {
        const int64_t at = r * columns + c;
        with.bias_gelu_backward(to.place(at, slope), sums.line(piece) + c, d.read(at, n, arriving),
                                in.read(at, n, sum), b.data() + c, n, form_of(g));
        to.write(at, n, slope);
      });
      sums.row_done(piece);
    }
  });
  if (!dbias.defined()) return;
  sums.store(db.data(), 0, columns);
  db.store();
}

const Provide provided[] = {
    {kernel::gelu, DeviceType::cpu, gelu},
    {kernel::gelu_backward, DeviceType::cpu, gelu_backward},
    {kernel::bias_gelu, DeviceType::cpu, bias_gelu},
    {kernel::bias_gelu_backward, DeviceType::cpu, bias_gelu_backward},
};

}  // namespace
}  // namespace lockstep::cpu
