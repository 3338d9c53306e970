#include "distributed/comm/fold.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace lockstep::distributed {
namespace {

constexpr int64_t kBlock = 1024;  // elements: the sums of a block stay in the first-level cache

template <class T>
struct SumOf {
  using type = float;
};
template <>
struct SumOf<uint8_t> {
  using type = int64_t;
};
template <>
struct SumOf<int32_t> {
  using type = int64_t;
};
template <>
struct SumOf<int64_t> {
  using type = __int128;
};

template <class T>
constexpr bool kFloating = std::is_same_v<typename SumOf<T>::type, float>;
template <class T>
constexpr bool kTwoBytes = kFloating<T> && sizeof(T) == 2;

// `round` narrows to the wire's dtype and back, where sums are made in it.
template <class T, bool kWire>
typename SumOf<T>::type round(typename SumOf<T>::type x) {
  if constexpr (kWire)
    return static_cast<float>(T(x));
  else
    return x;
}

template <ReduceOp kOp, class S>
S combine(S a, S b) {
  if constexpr (kOp == ReduceOp::max)
    return b > a || b != b ? b : a;
  else if constexpr (kOp == ReduceOp::min)
    return b < a || b != b ? b : a;
  else
    return a + b;
}

template <class T, ReduceOp kOp, bool kWire>
void fold_blocks(std::span<void* const> outs, std::span<const void* const> ins, int64_t numel,
                 const ReduceSpec& spec) {
  using S = typename SumOf<T>::type;
  S sums[kBlock];
  T result[kBlock];
  const auto load = [&](const T& x) {
    if constexpr (kFloating<T>)
      return round<T, kWire>(static_cast<S>(x) * spec.pre);
    else
      return static_cast<S>(x);
  };
  for (int64_t at = 0; at < numel; at += kBlock) {
    const int64_t n = std::min(kBlock, numel - at);
    const T* first = static_cast<const T*>(ins[0]) + at;
    for (int64_t i = 0; i < n; ++i) sums[i] = load(first[i]);
    for (const void* in : ins.subspan(1)) {
      const T* x = static_cast<const T*>(in) + at;
      for (int64_t i = 0; i < n; ++i) sums[i] = round<T, kWire>(combine<kOp>(sums[i], load(x[i])));
    }
    if constexpr (kOp == ReduceOp::mean) {
      const S ranks = static_cast<S>(ins.size());
      for (int64_t i = 0; i < n; ++i) sums[i] = round<T, kWire>(sums[i] / ranks);
    }
    if constexpr (kFloating<T>) {
      for (int64_t i = 0; i < n; ++i) result[i] = T(sums[i] * spec.post);
    } else {
      for (int64_t i = 0; i < n; ++i) result[i] = static_cast<T>(sums[i]);
    }
    for (void* out : outs)
      std::memcpy(static_cast<T*>(out) + at, result, static_cast<size_t>(n) * sizeof(T));
  }
}

// The plain case that training spends its time in: two ranks, f32, in place, one pass.
void fold_pair(float* a, float* b, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) a[i] = b[i] = a[i] + b[i];
}

template <class T, bool kWire>
void fold_typed(std::span<void* const> outs, std::span<const void* const> ins, int64_t numel,
                const ReduceSpec& spec) {
  switch (spec.op) {
    case ReduceOp::sum:
      return fold_blocks<T, ReduceOp::sum, kWire>(outs, ins, numel, spec);
    case ReduceOp::mean:
      return fold_blocks<T, ReduceOp::mean, kWire>(outs, ins, numel, spec);
    case ReduceOp::max:
      return fold_blocks<T, ReduceOp::max, kWire>(outs, ins, numel, spec);
    case ReduceOp::min:
      return fold_blocks<T, ReduceOp::min, kWire>(outs, ins, numel, spec);
  }
}

template <class T>
void fold_any(std::span<void* const> outs, std::span<const void* const> ins, int64_t numel,
              const ReduceSpec& spec) {
  if constexpr (kTwoBytes<T>)
    if (spec.reduce_in == ReduceIn::wire) return fold_typed<T, true>(outs, ins, numel, spec);
  fold_typed<T, false>(outs, ins, numel, spec);
}

}  // namespace

void fold(std::span<void* const> outs, std::span<const void* const> ins, DType dtype, int64_t numel,
          const ReduceSpec& spec) {
  const bool plain = spec.op == ReduceOp::sum && spec.pre == 1 && spec.post == 1;
  if (plain && dtype == DType::f32 && ins.size() == 2 && std::ranges::equal(outs, ins))
    return fold_pair(static_cast<float*>(outs[0]), static_cast<float*>(outs[1]), numel);
  switch (dtype) {
    case DType::f32:
      return fold_any<float>(outs, ins, numel, spec);
    case DType::f16:
      return fold_any<half>(outs, ins, numel, spec);
    case DType::bf16:
      return fold_any<bfloat16>(outs, ins, numel, spec);
    case DType::i64:
      return fold_any<int64_t>(outs, ins, numel, spec);
    case DType::i32:
      return fold_any<int32_t>(outs, ins, numel, spec);
    case DType::u8:
      return fold_any<uint8_t>(outs, ins, numel, spec);
  }
}

}  // namespace lockstep::distributed
