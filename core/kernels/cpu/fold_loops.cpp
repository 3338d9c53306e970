#include "core/kernels/cpu/fold_loops.h"

#include "core/kernels/cpu/half_vec.h"

namespace lockstep::cpu {
namespace {

using kernel::FoldIn;
using kernel::FoldOp;

// Elements in memory, as vectors of f32; `left` of them remain.
struct Float {
  static constexpr int64_t kBytes = 4;
  static Vec load(const void* p, int64_t left) {
    const float* x = static_cast<const float*>(p);
    return left >= kWidth ? cpu::load(x) : load_n(x, left);
  }
  static void store(void* p, Vec v, int64_t left) {
    float* x = static_cast<float*>(p);
    left >= kWidth ? cpu::store(x, v) : store_n(x, v, left);
  }
};
template <class Code>
struct Short {
  static constexpr int64_t kBytes = 2;
  static Vec load(const void* p, int64_t left) {
    const uint16_t* x = static_cast<const uint16_t*>(p);
    return Code::widen(left >= kWidth ? load_short(x) : load_short_n(x, left));
  }
  static void store(void* p, Vec v, int64_t left) {
    uint16_t* x = static_cast<uint16_t*>(p);
    left >= kWidth ? store_short(x, Code::narrow(v)) : store_short_n(x, Code::narrow(v), left);
  }
  static Vec round(Vec v) { return Code::widen(Code::narrow(v)); }
};

template <FoldOp kOp>
inline Vec combine(Vec a, Vec b) {
  if constexpr (kOp == FoldOp::max)
    return select((b > a) | (b != b), b, a);
  else if constexpr (kOp == FoldOp::min)
    return select((b < a) | (b != b), b, a);
  else
    return a + b;
}

// kVectors vectors from element `at` on.
template <class Element, FoldOp kOp, FoldIn kIn, int kVectors>
inline void fold_at(const FoldTask& task, int64_t at, int64_t left) {
  const Vec pre = set(task.options.pre), post = set(task.options.post),
            count = set(static_cast<float>(task.in_count));
  const auto round = [](Vec v) {
    if constexpr (kIn == FoldIn::wire)
      return Element::round(v);
    else
      return v;
  };
  const auto load = [&](int64_t k, int j) {
    const char* x = static_cast<const char*>(task.ins[k]);
    return round(Element::load(x + (at + j * kWidth) * Element::kBytes, left) * pre);
  };
  Vec sums[kVectors];
  for (int j = 0; j < kVectors; ++j) sums[j] = load(0, j);
  for (int64_t k = 1; k < task.in_count; ++k)
    for (int j = 0; j < kVectors; ++j) sums[j] = round(combine<kOp>(sums[j], load(k, j)));
  for (int j = 0; j < kVectors; ++j) {
    if constexpr (kOp == FoldOp::mean) sums[j] = round(sums[j] / count);
    sums[j] *= post;
  }
  for (int64_t k = 0; k < task.out_count; ++k) {
    char* out = static_cast<char*>(task.outs[k]);
    for (int j = 0; j < kVectors; ++j)
      Element::store(out + (at + j * kWidth) * Element::kBytes, sums[j], left);
  }
}

template <class Element, FoldOp kOp, FoldIn kIn>
void fold_floats(const FoldTask& task) {
  constexpr int kVectors = 4;
  constexpr int64_t kStep = kVectors * kWidth;
  const int64_t n = task.numel;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) fold_at<Element, kOp, kIn, kVectors>(task, i, kStep);
  for (; i < n; i += kWidth) fold_at<Element, kOp, kIn, 1>(task, i, n - i);
}

template <class Element, FoldIn kIn>
void fold_in(const FoldTask& task) {
  switch (task.options.op) {
    case FoldOp::sum:
      return fold_floats<Element, FoldOp::sum, kIn>(task);
    case FoldOp::mean:
      return fold_floats<Element, FoldOp::mean, kIn>(task);
    case FoldOp::max:
      return fold_floats<Element, FoldOp::max, kIn>(task);
    case FoldOp::min:
      return fold_floats<Element, FoldOp::min, kIn>(task);
  }
}

void fold_f32(const FoldTask& task) { fold_in<Float, FoldIn::f32>(task); }
template <class Code>
void fold_short(const FoldTask& task) {
  if (task.options.in == FoldIn::wire) return fold_in<Short<Code>, FoldIn::wire>(task);
  fold_in<Short<Code>, FoldIn::f32>(task);
}

// Integers T by sums of type S, in blocks that stay in the first-level cache.
template <class T, class S, class Add, class Finish>
inline void fold_blocks(const FoldTask& task, Add add, Finish finish) {
  constexpr int64_t kBlock = 512;
  S sums[kBlock];
  T result[kBlock];
  for (int64_t at = 0; at < task.numel; at += kBlock) {
    const int64_t n = task.numel - at < kBlock ? task.numel - at : kBlock;
    const T* first = static_cast<const T*>(task.ins[0]) + at;
    for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<S>(first[i]);
    for (int64_t k = 1; k < task.in_count; ++k) {
      const T* x = static_cast<const T*>(task.ins[k]) + at;
      for (int64_t i = 0; i < n; ++i) sums[i] = add(sums[i], static_cast<S>(x[i]));
    }
    for (int64_t i = 0; i < n; ++i) result[i] = static_cast<T>(finish(sums[i]));
    for (int64_t k = 0; k < task.out_count; ++k)
      __builtin_memcpy(static_cast<T*>(task.outs[k]) + at, result,
                       static_cast<unsigned long>(n) * sizeof(T));
  }
}

// Unsigned is where sums wrap, Wide where they are exact.
template <class T, class Unsigned, class Wide>
void fold_integers(const FoldTask& task) {
  const auto as_it_is = [](auto x) { return x; };
  switch (task.options.op) {
    case FoldOp::sum:
      return fold_blocks<T, Unsigned>(
          task, [](Unsigned a, Unsigned b) { return static_cast<Unsigned>(a + b); }, as_it_is);
    case FoldOp::mean:
      return fold_blocks<T, Wide>(
          task, [](Wide a, Wide b) { return a + b; },
          [count = static_cast<Wide>(task.in_count)](Wide sum) { return sum / count; });
    case FoldOp::max:
      return fold_blocks<T, T>(
          task, [](T a, T b) { return b > a ? b : a; }, as_it_is);
    case FoldOp::min:
      return fold_blocks<T, T>(
          task, [](T a, T b) { return b < a ? b : a; }, as_it_is);
  }
}

}  // namespace

const FoldLoops LOCKSTEP_LOOPS_TABLE(Fold) = {fold_f32,
                                              fold_short<Half>,
                                              fold_short<Bfloat16>,
                                              fold_integers<int64_t, uint64_t, __int128>,
                                              fold_integers<int32_t, uint32_t, int64_t>,
                                              fold_integers<uint8_t, uint8_t, int64_t>};

}  // namespace lockstep::cpu
