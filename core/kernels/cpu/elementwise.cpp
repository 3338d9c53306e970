#include "core/kernels/elementwise.h"

#include <cstring>

#include "core/kernels/cpu/elementwise_loops.h"
#include "core/kernels/cpu/floats.h"

namespace lockstep::cpu {
namespace {

static_assert(static_cast<int>(kernel::Unary::reciprocal) == static_cast<int>(UnaryOp::reciprocal));

const ElementwiseLoops& loops() { return LOCKSTEP_PICK_LOOPS(Elementwise); }

template <class T>
void fill_with(void* out, int64_t n, double value) {
  T* p = static_cast<T*>(out);
  T v;
  if constexpr (std::is_integral_v<T>)
    v = static_cast<T>(static_cast<int64_t>(value));
  else
    v = T(static_cast<float>(value));
  parallel_for(n, 4 * kGrain,
               [=](int64_t begin, int64_t end) { std::fill(p + begin, p + end, v); });
}

void fill(const Tensor& out, double value) {
  void* p = out.mutable_bytes_data();
  const int64_t n = out.numel();
  switch (out.dtype()) {
    case DType::f32:
      return fill_with<float>(p, n, value);
    case DType::f16:
      return fill_with<half>(p, n, value);
    case DType::bf16:
      return fill_with<bfloat16>(p, n, value);
    case DType::i64:
      return fill_with<int64_t>(p, n, value);
    case DType::i32:
      return fill_with<int32_t>(p, n, value);
    case DType::u8:
      return fill_with<uint8_t>(p, n, value);
  }
}

void copy(const Tensor& out, const Tensor& x) {
  check(out.dtype() == x.dtype() && out.numel() == x.numel(), "[kernel.copy] expected {}, got {}",
        out, x);
  const auto* from = static_cast<const std::byte*>(x.bytes_data());
  auto* to = static_cast<std::byte*>(out.mutable_bytes_data());
  if (from == to) return;
  parallel_for(x.bytes(), 16 * kGrain, [=](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

void unary(const Tensor& out, const Tensor& x, kernel::Unary op) {
  expect_same_floats("unary", {&x, &out});
  map_floats(
      kGrain, out,
      [with = loops().unary, op = static_cast<UnaryOp>(op)](float* to, const float* in, int64_t n) {
        with(to, in, n, op);
      },
      x);
}

void unary_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& y,
                    kernel::Unary op) {
  expect_same_floats("unary_backward", {&dx, &dy, &x, &y});
  map_floats(
      kGrain, dx,
      [with = loops().unary_backward, op = static_cast<UnaryOp>(op)](
          float* to, const float* d, const float* in, const float* value, int64_t n) {
        with(to, d, in, value, n, op);
      },
      dy, x, y);
}

void scale(const Tensor& out, const Tensor& x, float factor) {
  expect_same_floats("scale", {&x, &out});
  map_floats(
      2 * kGrain, out,
      [with = loops().scale, factor](float* to, const float* in, int64_t n) {
        with(to, in, factor, n);
      },
      x);
}

void add_scaled(const Tensor& out, const Tensor& x, float factor) {
  expect_same_floats("add_scaled", {&x, &out});
  const FloatsIn before(out), in(x);
  const FloatsOut to(out);
  const auto& with = loops();
  parallel_for(x.numel(), 2 * kGrain, [&](int64_t begin, int64_t end) {
    Room sum, added;
    in_rooms(any_narrow(in, to), begin, end, [&](int64_t at, int64_t n) {
      before.read(at, n, sum);
      with.add_scaled(to.place(at, sum), in.read(at, n, added), factor, n);
      to.write(at, n, sum);
    });
  });
}

const Provide provided[] = {
    {kernel::fill, DeviceType::cpu, fill},
    {kernel::copy, DeviceType::cpu, copy},
    {kernel::unary, DeviceType::cpu, unary},
    {kernel::unary_backward, DeviceType::cpu, unary_backward},
    {kernel::scale, DeviceType::cpu, scale},
    {kernel::add_scaled, DeviceType::cpu, add_scaled},
};

}  // namespace
}  // namespace lockstep::cpu
