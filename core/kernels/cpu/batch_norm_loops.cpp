#include "core/kernels/cpu/batch_norm_loops.h"

#include "core/kernels/cpu/vec.h"

namespace lockstep::cpu {
namespace {

inline Vec get(const float* p, int64_t left) { return left >= kWidth ? load(p) : load_n(p, left); }
inline void put(float* p, Vec v, int64_t left) {
  if (left >= kWidth)
    store(p, v);
  else
    store_n(p, v, left);
}

// A number of a channel: one for all elements, or one for each.
template <bool kEach>
struct Numbers {
  const float* p;
  Vec v;
  explicit Numbers(const float* numbers) : p(numbers), v(set(*numbers)) {}
  Vec at(int64_t i, int64_t left) const {
    if constexpr (kEach)
      return get(p + i, left);
    else
      return v;
  }
};

// Σ of each of what f(i, n) gives, kTerms vectors, over n elements a time: in kChains sums that do
// not wait for each other. Lanes beyond n must be 0.
constexpr int kChains = 4;
template <int kTerms>
struct Terms {
  Vec v[kTerms];
};
template <int kTerms, class F>
[[gnu::always_inline]] inline Terms<kTerms> sum_over(int64_t n, F f) {
  Vec sums[kChains][kTerms] = {};
  int64_t i = 0;
  for (; i + kChains * kWidth <= n; i += kChains * kWidth)
#pragma GCC unroll 4
    for (int chain = 0; chain < kChains; ++chain) f(sums[chain], i + chain * kWidth, kWidth);
  for (; i < n; i += kWidth) f(sums[0], i, n - i < kWidth ? n - i : kWidth);
  Terms<kTerms> all;
#pragma GCC unroll 2
  for (int t = 0; t < kTerms; ++t) all.v[t] = (sums[0][t] + sums[1][t]) + (sums[2][t] + sums[3][t]);
  return all;
}
inline Vec upto(Vec v, int64_t n) { return n >= kWidth ? v : keep_n(v, n, Vec{}); }

void row_deviation(double* sum, const float* x, float origin, int64_t n) {
  const Vec o = set(origin);
  *sum += reduce_add(sum_over<1>(n, [&](Vec* sums, int64_t i, int64_t left) {
                       sums[0] += upto(get(x + i, left) - o, left);
                     }).v[0]);
}
void columns_deviation(float* sum, const float* x, const float* origin, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    put(sum + i, get(sum + i, left) + (get(x + i, left) - get(origin + i, left)), left);
  }
}

void row_moments(double* linear, double* square, const float* x, float centre, int64_t n) {
  const Vec c = set(centre);
  const auto all = sum_over<2>(n, [&](Vec* sums, int64_t i, int64_t left) {
    const Vec d = upto(get(x + i, left) - c, left);
    sums[0] += d;
    sums[1] = fma(d, d, sums[1]);
  });
  *linear += reduce_add(all.v[0]);
  *square += reduce_add(all.v[1]);
}
void columns_moments(float* linear, float* square, const float* x, const float* centre, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    const Vec d = get(x + i, left) - get(centre + i, left);
    put(linear + i, get(linear + i, left) + d, left);
    put(square + i, fma(d, d, get(square + i, left)), left);
  }
}

enum class After { nothing, relu, add_relu };

template <bool kEach, After kAfter>
void apply(float* y, const float* x, const float* addend, const float* centre, const float* shift,
           const float* scale, const float* offset, int64_t n) {
  if (n == 0) return;
  const Numbers<kEach> c(centre), s(shift), g(scale), b(offset);
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    const Vec d = get(x + i, left) - c.at(i, left) - s.at(i, left);
    Vec v = fma(d, g.at(i, left), b.at(i, left));
    if constexpr (kAfter == After::add_relu) v += get(addend + i, left);
    if constexpr (kAfter != After::nothing) v = max(Vec{}, v);  // NaN stays
    put(y + i, v, left);
  }
}

inline Vec where_positive(Vec v, Vec d) { return select(v > Vec{}, d, Vec{}); }

// f(i, n): Σ first and Σ second of what it gives for n elements from i on, into doubles.
struct Two {
  Vec first, second;
};
template <class F>
inline void sum_row(double* plain, double* weighted, int64_t n, F f) {
  const auto all = sum_over<2>(n, [&](Vec* sums, int64_t i, int64_t left) {
    const Two t = f(i, left);
    const Vec first = upto(t.first, left);
    sums[0] += first;
    sums[1] = fma(first, upto(t.second, left), sums[1]);
  });
  *plain += reduce_add(all.v[0]);
  *weighted += reduce_add(all.v[1]);
}
template <class F>
inline void sum_columns(float* plain, float* weighted, int64_t n, F f) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    const Two t = f(i, left);
    put(plain + i, get(plain + i, left) + t.first, left);
    put(weighted + i, fma(t.first, t.second, get(weighted + i, left)), left);
  }
}

void row_sums(double* plain, double* weighted, const float* dy, const float* x, float centre,
              float shift, int64_t n) {
  const Vec c = set(centre), s = set(shift);
  sum_row(plain, weighted, n, [&](int64_t i, int64_t left) -> Two {
    return {get(dy + i, left), get(x + i, left) - c - s};
  });
}
void row_sums_relu(double* plain, double* weighted, const float* dy, const float* x, float centre,
                   float shift, float scale, float offset, int64_t n) {
  const Vec c = set(centre), s = set(shift), g = set(scale), b = set(offset);
  sum_row(plain, weighted, n, [&](int64_t i, int64_t left) -> Two {
    const Vec e = get(x + i, left) - c - s;
    return {where_positive(fma(e, g, b), get(dy + i, left)), e};
  });
}
void row_sums_through(double* plain, double* weighted, float* d, const float* dy, const float* y,
                      const float* x, float centre, float shift, int64_t n) {
  const Vec c = set(centre), s = set(shift);
  sum_row(plain, weighted, n, [&](int64_t i, int64_t left) -> Two {
    const Vec passed = where_positive(get(y + i, left), get(dy + i, left));
    put(d + i, passed, left);
    return {passed, get(x + i, left) - c - s};
  });
}
void columns_sums(float* plain, float* weighted, const float* dy, const float* x,
                  const float* centre, const float* shift, int64_t n) {
  sum_columns(plain, weighted, n, [&](int64_t i, int64_t left) -> Two {
    return {get(dy + i, left), get(x + i, left) - get(centre + i, left) - get(shift + i, left)};
  });
}
void columns_sums_relu(float* plain, float* weighted, const float* dy, const float* x,
                       const float* centre, const float* shift, const float* scale,
                       const float* offset, int64_t n) {
  sum_columns(plain, weighted, n, [&](int64_t i, int64_t left) -> Two {
    const Vec e = get(x + i, left) - get(centre + i, left) - get(shift + i, left),
              v = fma(e, get(scale + i, left), get(offset + i, left));
    return {where_positive(v, get(dy + i, left)), e};
  });
}
void columns_sums_through(float* plain, float* weighted, float* d, const float* dy, const float* y,
                          const float* x, const float* centre, const float* shift, int64_t n) {
  sum_columns(plain, weighted, n, [&](int64_t i, int64_t left) -> Two {
    const Vec passed = where_positive(get(y + i, left), get(dy + i, left));
    put(d + i, passed, left);
    return {passed, get(x + i, left) - get(centre + i, left) - get(shift + i, left)};
  });
}

template <bool kEach, bool kRelu>
void backward(float* dx, const float* dy, const float* x, const float* centre, const float* shift,
              const float* scale, const float* offset, const float* mean, const float* slope,
              int64_t n) {
  if (n == 0) return;
  const Numbers<kEach> c(centre), s(shift), g(scale), b(offset), m(mean), k(slope);
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    const Vec e = get(x + i, left) - c.at(i, left) - s.at(i, left);
    Vec d = get(dy + i, left);
    if constexpr (kRelu) d = where_positive(fma(e, g.at(i, left), b.at(i, left)), d);
    d -= m.at(i, left);
    put(dx + i, g.at(i, left) * fnma(e, k.at(i, left), d), left);
  }
}

}  // namespace

const BatchNormLoops LOCKSTEP_LOOPS_TABLE(BatchNorm) = {row_deviation,
                                                        columns_deviation,
                                                        row_moments,
                                                        columns_moments,
                                                        apply<false, After::nothing>,
                                                        apply<false, After::relu>,
                                                        apply<false, After::add_relu>,
                                                        apply<true, After::nothing>,
                                                        apply<true, After::relu>,
                                                        apply<true, After::add_relu>,
                                                        row_sums,
                                                        row_sums_relu,
                                                        row_sums_through,
                                                        columns_sums,
                                                        columns_sums_relu,
                                                        columns_sums_through,
                                                        backward<false, false>,
                                                        backward<false, true>,
                                                        backward<true, false>,
                                                        backward<true, true>};

}  // namespace lockstep::cpu
