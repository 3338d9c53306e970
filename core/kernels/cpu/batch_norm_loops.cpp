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

void row_deviation(double* sum, const float* x, float origin, int64_t n) {
  const int64_t whole = n - n % kWidth, rest = n - whole;
  const Vec o = set(origin);
  Vec a{};
  for (int64_t i = 0; i < whole; i += kWidth) a += load(x + i) - o;
  if (rest) a += keep_n(load_n(x + whole, rest) - o, rest, Vec{});
  *sum += reduce_add(a);
}
void columns_deviation(float* sum, const float* x, const float* origin, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    put(sum + i, get(sum + i, left) + (get(x + i, left) - get(origin + i, left)), left);
  }
}

void row_moments(double* linear, double* square, const float* x, float centre, int64_t n) {
  const int64_t whole = n - n % kWidth, rest = n - whole;
  const Vec c = set(centre);
  Vec a{}, b{};
  for (int64_t i = 0; i < whole; i += kWidth) {
    const Vec d = load(x + i) - c;
    a += d;
    b = fma(d, d, b);
  }
  if (rest) {
    const Vec d = keep_n(load_n(x + whole, rest) - c, rest, Vec{});
    a += d;
    b = fma(d, d, b);
  }
  *linear += reduce_add(a);
  *square += reduce_add(b);
}
void columns_moments(float* linear, float* square, const float* x, const float* centre, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    const Vec d = get(x + i, left) - get(centre + i, left);
    put(linear + i, get(linear + i, left) + d, left);
    put(square + i, fma(d, d, get(square + i, left)), left);
  }
}

template <bool kEach>
void apply(float* y, const float* x, const float* centre, const float* shift, const float* scale,
           const float* offset, int64_t n) {
  if (n == 0) return;
  const Numbers<kEach> c(centre), s(shift), g(scale), b(offset);
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    const Vec d = get(x + i, left) - c.at(i, left) - s.at(i, left);
    put(y + i, fma(d, g.at(i, left), b.at(i, left)), left);
  }
}

void row_sums(double* plain, double* weighted, const float* dy, const float* x, float centre,
              float shift, int64_t n) {
  const int64_t whole = n - n % kWidth, rest = n - whole;
  const Vec c = set(centre), s = set(shift);
  Vec a{}, b{};
  for (int64_t i = 0; i < whole; i += kWidth) {
    const Vec d = load(dy + i);
    a += d;
    b = fma(d, load(x + i) - c - s, b);
  }
  if (rest) {
    const Vec d = load_n(dy + whole, rest);  // 0 beyond the end
    a += d;
    b = fma(d, keep_n(load_n(x + whole, rest) - c - s, rest, Vec{}), b);
  }
  *plain += reduce_add(a);
  *weighted += reduce_add(b);
}
void columns_sums(float* plain, float* weighted, const float* dy, const float* x,
                  const float* centre, const float* shift, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    const Vec d = get(dy + i, left),
              e = get(x + i, left) - get(centre + i, left) - get(shift + i, left);
    put(plain + i, get(plain + i, left) + d, left);
    put(weighted + i, fma(d, e, get(weighted + i, left)), left);
  }
}

template <bool kEach>
void backward(float* dx, const float* dy, const float* x, const float* centre, const float* shift,
              const float* scale, const float* mean, const float* slope, int64_t n) {
  if (n == 0) return;
  const Numbers<kEach> c(centre), s(shift), g(scale), m(mean), k(slope);
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    const Vec e = get(x + i, left) - c.at(i, left) - s.at(i, left);
    const Vec d = get(dy + i, left) - m.at(i, left);
    put(dx + i, g.at(i, left) * fnma(e, k.at(i, left), d), left);
  }
}

}  // namespace

const BatchNormLoops LOCKSTEP_LOOPS_TABLE(BatchNorm) = {
    row_deviation, columns_deviation, row_moments,  columns_moments, apply<false>,
    apply<true>,   row_sums,          columns_sums, backward<false>, backward<true>};

}  // namespace lockstep::cpu
