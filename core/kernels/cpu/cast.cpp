#include "core/kernels/cpu/cast.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "core/kernels/cpu/floats.h"
#include "core/kernels/elementwise.h"

namespace lockstep::cpu {
namespace {

template <class T>
constexpr bool kInteger = std::is_integral_v<T>;

// Towards zero; what does not fit becomes the nearest that does, NaN 0.
template <class To>
To truncate(double x) {
  using Limits = std::numeric_limits<To>;
  if (x != x) return 0;
  if (x <= static_cast<double>(Limits::min())) return Limits::min();
  return x >= static_cast<double>(Limits::max()) ? Limits::max() : static_cast<To>(x);
}

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (kInteger<To> && kInteger<From>)
    return static_cast<To>(x);
  else if constexpr (kInteger<To>)
    return truncate<To>(static_cast<float>(x));
  else
    return To(static_cast<float>(x));
}

template <class To, class From>
void cast_loop(const Tensor& out, const Tensor& x) {
  const From* from = x.data<From>();
  To* to = out.mutable_data<To>();
  parallel_for(x.numel(), kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = convert<To>(from[i]);
  });
}

template <class F>
void with_type(DType t, F f) {
  switch (t) {
    case DType::f32:
      return f(float{});
    case DType::f16:
      return f(half{});
    case DType::bf16:
      return f(bfloat16{});
    case DType::i64:
      return f(int64_t{});
    case DType::i32:
      return f(int32_t{});
    case DType::u8:
      return f(uint8_t{});
  }
}

// The pairs of training, with vector loops.
template <class To, class From>
void cast_vectors(const Tensor& out, const Tensor& x, void (*loop)(To*, const From*, int64_t)) {
  const auto* from = static_cast<const From*>(x.bytes_data());
  auto* to = static_cast<To*>(out.mutable_bytes_data());
  parallel_for(x.numel(), kGrain,
               [=](int64_t begin, int64_t end) { loop(to + begin, from + begin, end - begin); });
}

// Between f16 and bf16, by way of f32.
void cast_narrow(const Tensor& out, const Tensor& x) {
  const FloatsIn from(x);
  const FloatsOut to(out);
  parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    Room room;
    in_rooms(true, begin, end,
             [&](int64_t at, int64_t n) { to.write(at, n, from.read(at, n, room)); });
  });
}

void cast(const Tensor& out, const Tensor& x) {
  expect_shape("cast", "out", out, x.shape());
  if (out.dtype() == x.dtype()) return kernel::copy(out, x);
  const auto& loops = LOCKSTEP_PICK_LOOPS(Cast);
  const auto is = [&](DType from, DType to) { return x.dtype() == from && out.dtype() == to; };
  if (is(DType::f16, DType::f32)) return cast_vectors(out, x, loops.half_to_float);
  if (is(DType::f32, DType::f16)) return cast_vectors(out, x, loops.float_to_half);
  if (is(DType::bf16, DType::f32)) return cast_vectors(out, x, loops.bfloat16_to_float);
  if (is(DType::f32, DType::bf16)) return cast_vectors(out, x, loops.float_to_bfloat16);
  if (is(DType::f16, DType::bf16) || is(DType::bf16, DType::f16)) return cast_narrow(out, x);
  with_type(x.dtype(), [&](auto from) {
    with_type(out.dtype(), [&](auto to) { cast_loop<decltype(to), decltype(from)>(out, x); });
  });
}

const Provide provided{kernel::cast, DeviceType::cpu, cast};

}  // namespace

void widen(float* out, const void* x, DType dtype, int64_t n) {
  const auto& loops = LOCKSTEP_PICK_LOOPS(Cast);
  if (dtype == DType::f16) return loops.half_to_float(out, static_cast<const uint16_t*>(x), n);
  if (dtype == DType::bf16) return loops.bfloat16_to_float(out, static_cast<const uint16_t*>(x), n);
  std::memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
}

void narrow(void* out, DType dtype, const float* x, int64_t n) {
  const auto& loops = LOCKSTEP_PICK_LOOPS(Cast);
  if (dtype == DType::f16) return loops.float_to_half(static_cast<uint16_t*>(out), x, n);
  if (dtype == DType::bf16) return loops.float_to_bfloat16(static_cast<uint16_t*>(out), x, n);
  std::memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace lockstep::cpu
