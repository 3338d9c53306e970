#include "core/kernels/cpu/floats.h"

namespace lockstep::cpu {
namespace {

void expect_floating(std::string_view kernel, std::string_view what, const Tensor& x) {
  check(is_floating(x.dtype()), "[kernel.{}] dtype of {}; expected f32, f16 or bf16, got {}",
        kernel, what, name_of(x.dtype()));
}

bool is_narrow(const Tensor& x) { return x.defined() && x.dtype() != DType::f32; }

}  // namespace

void expect_floats(std::string_view kernel, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* x : tensors) expect_floating(kernel, "an operand", *x);
}

void expect_same_floats(std::string_view kernel, std::initializer_list<const Tensor*> tensors) {
  expect_floats(kernel, tensors);
  const Tensor& first = **tensors.begin();
  for (const Tensor* x : tensors)
    check(x->shape() == first.shape() && x->device() == first.device(),
          "[kernel.{}] an operand; expected shape {}, got {}", kernel, first.shape(), *x);
}

void expect_float_vector(std::string_view kernel, std::string_view what, const Tensor& x,
                         int64_t n) {
  expect_floating(kernel, what, x);
  expect_shape(kernel, what, x, Shape{n});
}

FloatsIn::FloatsIn(const Tensor& x) {
  if (!x.defined()) return;
  data_ = x.bytes_data();
  const auto& loops = LOCKSTEP_PICK_LOOPS(Cast);
  if (is_narrow(x))
    widen_ = x.dtype() == DType::f16 ? loops.half_to_float : loops.bfloat16_to_float;
}

FloatsOut::FloatsOut(const Tensor& out) {
  if (!out.defined()) return;
  data_ = out.mutable_bytes_data();
  const auto& loops = LOCKSTEP_PICK_LOOPS(Cast);
  if (is_narrow(out))
    narrow_ = out.dtype() == DType::f16 ? loops.float_to_half : loops.float_to_bfloat16;
}

Widened::Widened(const Tensor& x) : scratch_(is_narrow(x) ? x.numel() : 0) {
  const FloatsIn in(x);
  if (!in.narrow()) {
    floats_ = in.read(0, 0, nullptr);
    return;
  }
  float* to = scratch_.data();
  parallel_for(x.numel(), kGrain,
               [&](int64_t begin, int64_t end) { in.read(begin, end - begin, to + begin); });
  floats_ = to;
}

Rounded::Rounded(const Tensor& out)
    : out_(out),
      numel_(out.defined() ? out.numel() : 0),
      scratch_(out_.narrow() ? numel_ : 0),
      floats_(out_.place(0, scratch_.data())) {}

void Rounded::store() const {
  if (!out_.narrow()) return;
  parallel_for(numel_, kGrain, [&](int64_t begin, int64_t end) {
    out_.write(begin, end - begin, floats_ + begin);
  });
}

}  // namespace lockstep::cpu
