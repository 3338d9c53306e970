#include "core/kernels/interaction.h"

#include "core/kernels/cpu/host.h"
#include "core/kernels/cpu/interaction_loops.h"

namespace lockstep::kernel {

int64_t interaction_width(int64_t vectors, int64_t width) {
  check(vectors >= 1 && width >= 1,
        "[kernel.dot_interaction] expected at least 1 vector of at least 1 element, got {} of {}",
        vectors, width);
  return checked_add(width, checked_mul(vectors, vectors - 1) / 2);
}

}  // namespace lockstep::kernel

namespace lockstep::cpu {
namespace {

void expect_pairs(std::string_view kernel, const Tensor& out, const Tensor& x) {
  expect_dtype(kernel, "x", x, DType::f32);
  expect_dtype(kernel, "products", out, DType::f32);
  check(x.rank() == 3, "[kernel.{}] x; expected [samples, vectors, width], got {}", kernel, x);
  expect_shape(kernel, "products", out,
               {x.size(0), kernel::interaction_width(x.size(1), x.size(2))});
}

int64_t grain(const Tensor& x) {
  return row_grain(x.size(1) * x.size(1) * std::max<int64_t>(1, x.size(2) / 16));
}

void dot_interaction(const Tensor& out, const Tensor& x) {
  expect_pairs("dot_interaction", out, x);
  const auto& loops = LOCKSTEP_PICK_LOOPS(Interaction);
  const int64_t vectors = x.size(1), width = x.size(2), columns = out.size(1);
  const float* from = x.data<float>();
  float* to = out.mutable_data<float>();
  parallel_for(x.size(0), grain(x), [&](int64_t begin, int64_t end) {
    const Scratch<float> room(loops.room(vectors, width));
    loops.forward(to + begin * columns, from + begin * vectors * width, room.data(), end - begin,
                  vectors, width);
  });
}

void dot_interaction_backward(const Tensor& dx, const Tensor& dout, const Tensor& x) {
  constexpr std::string_view kName = "dot_interaction_backward";
  expect_pairs(kName, dout, x);
  expect_dtype(kName, "dx", dx, DType::f32);
  expect_shape(kName, "dx", dx, x.shape());
  const auto& loops = LOCKSTEP_PICK_LOOPS(Interaction);
  const int64_t vectors = x.size(1), width = x.size(2), columns = dout.size(1);
  const float *from = x.data<float>(), *d = dout.data<float>();
  float* to = dx.mutable_data<float>();
  parallel_for(x.size(0), grain(x), [&](int64_t begin, int64_t end) {
    loops.backward(to + begin * vectors * width, d + begin * columns,
                   from + begin * vectors * width, end - begin, vectors, width);
  });
}

const Provide provided[] = {
    {kernel::dot_interaction, DeviceType::cpu, dot_interaction},
    {kernel::dot_interaction_backward, DeviceType::cpu, dot_interaction_backward},
};

}  // namespace
}  // namespace lockstep::cpu
