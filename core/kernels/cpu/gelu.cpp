#include "core/kernels/elementwise.h"

#include "core/kernels/cpu/column_sums.h"
#include "core/kernels/cpu/elementwise_loops.h"
#include "core/kernels/cpu/host.h"

namespace lockstep::cpu {
namespace {

const ElementwiseLoops& loops() { return LOCKSTEP_PICK_LOOPS(Elementwise); }
constexpr int64_t kGeluGrain = kGrain / 4;
GeluForm form_of(kernel::Gelu g) {
  return g == kernel::Gelu::exact ? GeluForm::exact : GeluForm::tanh;
}

void gelu(const Tensor& out, const Tensor& x, kernel::Gelu g) {
  expect_same("gelu", {&x, &out});
  const float* in = x.data<float>();
  float* to = out.mutable_data<float>();
  const auto& with = loops();
  parallel_for(x.numel(), kGeluGrain, [&](int64_t begin, int64_t end) {
    with.gelu(to + begin, in + begin, end - begin, form_of(g));
  });
}

void gelu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, kernel::Gelu g) {
  expect_same("gelu_backward", {&x, &dy, &dx});
  const float *in = x.data<float>(), *d = dy.data<float>();
  float* to = dx.mutable_data<float>();
  const auto& with = loops();
  parallel_for(x.numel(), kGeluGrain, [&](int64_t begin, int64_t end) {
    with.gelu_backward(to + begin, d + begin, in + begin, end - begin, form_of(g));
  });
}

void bias_gelu(const Tensor& out, const Tensor& x, const Tensor& bias, kernel::Gelu g) {
  expect_same("bias_gelu", {&x, &out});
  const int64_t columns = x.shape().last(), rows = x.shape().rows();
  expect_vector("bias_gelu", "bias", bias, columns);
  const float *in = x.data<float>(), *b = bias.data<float>();
  float* to = out.mutable_data<float>();
  const auto& with = loops();
  parallel_for(rows, row_grain(4 * columns), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      with.bias_gelu(to + n * columns, in + n * columns, b, columns, form_of(g));
  });
}

void bias_gelu_backward(const Tensor& dx, const Tensor& dbias, const Tensor& dy, const Tensor& x,
                        const Tensor& bias, kernel::Gelu g) {
  expect_same("bias_gelu_backward", {&x, &dy, &dx});
  const int64_t columns = x.shape().last(), rows = x.shape().rows();
  expect_vector("bias_gelu_backward", "bias", bias, columns);
  if (dbias.defined()) expect_vector("bias_gelu_backward", "dbias", dbias, columns);
  const float *in = x.data<float>(), *d = dy.data<float>(), *b = bias.data<float>();
  float* to = dx.mutable_data<float>();
  const auto& with = loops();
  ColumnSums sums(rows, columns, row_grain(4 * columns));
  parallel_for(rows, row_grain(4 * columns), [&](int64_t begin, int64_t end, int piece) {
    for (int64_t n = begin; n < end; ++n) {
      with.bias_gelu_backward(to + n * columns, sums.line(piece), d + n * columns, in + n * columns,
                              b, columns, form_of(g));
      sums.row_done(piece);
    }
  });
  if (dbias.defined()) sums.store(dbias.mutable_data<float>(), 0, columns);
}

const Provide provided[] = {
    {kernel::gelu, DeviceType::cpu, gelu},
    {kernel::gelu_backward, DeviceType::cpu, gelu_backward},
    {kernel::bias_gelu, DeviceType::cpu, bias_gelu},
    {kernel::bias_gelu_backward, DeviceType::cpu, bias_gelu_backward},
};

}  // namespace
}  // namespace lockstep::cpu
