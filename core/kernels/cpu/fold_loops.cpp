#include "core/kernels/cpu/fold_loops.h"

#include "core/kernels/cpu/half_vec.h"

namespace lockstep::cpu {
namespace {

constexpr int kVectors = 4;  // at a time

// Elements in memory as vectors of f32: kVectors of them, in any order of lanes, or the `left`
// last.
struct Float {
  using Type = float;
  static void load_all(Vec* v, const float* p) {
    for (int j = 0; j < kVectors; ++j) v[j] = load(p + j * kWidth);
  }
  static void store_all(float* p, const Vec* v) {
    for (int j = 0; j < kVectors; ++j) store(p + j * kWidth, v[j]);
  }
  static Vec load_some(const float* p, int64_t left) {
    return left < kWidth ? load_n(p, left) : load(p);
  }
  static void store_some(float* p, Vec v, int64_t left) {
    left < kWidth ? store_n(p, v, left) : store(p, v);
  }
};
template <class Code>
struct Short {
  using Type = uint16_t;
  static void load_all(Vec* v, const uint16_t* p) {
    for (int j = 0; j < kVectors; j += 2) Code::split(load_pair(p + j * kWidth), v[j], v[j + 1]);
  }
  static void store_all(uint16_t* p, const Vec* v) {
    for (int j = 0; j < kVectors; j += 2) store_pair(p + j * kWidth, Code::merge(v[j], v[j + 1]));
  }
  static Vec load_some(const uint16_t* p, int64_t left) {
    return Code::widen(load_short_n(p, left));
  }
  static void store_some(uint16_t* p, Vec v, int64_t left) {
    store_short_n(p, Code::narrow(v), left);
  }
  static Vec round(Vec v) { return Code::round(v); }
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

// kCount vectors from element `at` on, read and written by the functions given.
template <class Element, FoldOp kOp, FoldIn kIn, int kCount, class Load, class Store>
inline void fold_at(const FoldTask& task, Load load_from, Store store_to) {
  using T = typename Element::Type;
  const FoldOptions& options = task.options;
  const auto round = [](Vec v) {
    if constexpr (kIn == FoldIn::wire)
      return Element::round(v);
    else
      return v;
  };
  const auto scaled_input = [&](int64_t k, Vec* v) {
    load_from(v, static_cast<const T*>(task.ins[k]));
    if (options.pre != 1)
      for (int j = 0; j < kCount; ++j) v[j] = round(v[j] * set(options.pre));
  };
  Vec sums[kCount], v[kCount];
  scaled_input(0, sums);
  for (int64_t k = 1; k < task.in_count; ++k) {
    scaled_input(k, v);
    for (int j = 0; j < kCount; ++j) sums[j] = round(combine<kOp>(sums[j], v[j]));
  }
  for (int j = 0; j < kCount; ++j) {
    if constexpr (kOp == FoldOp::mean)
      sums[j] = round(sums[j] / set(static_cast<float>(task.in_count)));
    sums[j] *= set(options.post);
  }
  for (int64_t k = 0; k < task.out_count; ++k) store_to(static_cast<T*>(task.outs[k]), sums);
}

template <class Element, FoldOp kOp, FoldIn kIn>
void fold_floats(const FoldTask& task) {
  using T = typename Element::Type;
  constexpr int64_t kStep = kVectors * kWidth;
  int64_t i = 0;
  for (; i + kStep <= task.numel; i += kStep)
    fold_at<Element, kOp, kIn, kVectors>(
        task, [i](Vec* v, const T* p) { Element::load_all(v, p + i); },
        [i](T* p, const Vec* v) { Element::store_all(p + i, v); });
  for (; i < task.numel; i += kWidth) {
    const int64_t left = task.numel - i < kWidth ? task.numel - i : kWidth;
    fold_at<Element, kOp, kIn, 1>(
        task, [i, left](Vec* v, const T* p) { *v = Element::load_some(p + i, left); },
        [i, left](T* p, const Vec* v) { Element::store_some(p + i, *v, left); });
  }
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
