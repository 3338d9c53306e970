#include "core/kernels/cpu/reduce_loops.h"

#include "core/kernels/cpu/half_vec.h"

namespace lockstep::cpu {
namespace {

constexpr int kLanes = kWidth / 2;  // doubles in a vector

template <class Term, class ScalarTerm>
inline double accumulate(const float* x, int64_t n, Term term, ScalarTerm scalar_term) {
  DoubleVec sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) sums[j] += term(load_double(x + i + j * kLanes));
  double sum = reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < n; ++i) sum += scalar_term(static_cast<double>(x[i]));
  return sum;
}

double sum(const float* x, int64_t n) {
  return accumulate(
      x, n, [](DoubleVec v) { return v; }, [](double v) { return v; });
}
double sum_of_squares(const float* x, int64_t n) {
  return accumulate(
      x, n, [](DoubleVec v) { return v * v; }, [](double v) { return v * v; });
}

inline bool non_finite(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return (bits & 0x7f800000u) == 0x7f800000u;
}

int64_t first_non_finite(const float* x, int64_t n) {
  constexpr int64_t kBlock = 1024;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    IntVec found{};
    int64_t i = begin;
    for (; i + kWidth <= end; i += kWidth)
      found |= (reinterpret_cast<IntVec>(load(x + i)) & 0x7f800000) == 0x7f800000;
    found |= (reinterpret_cast<IntVec>(load_n(x + i, end - i)) & 0x7f800000) == 0x7f800000;
    int32_t any = 0;
    for (int lane = 0; lane < kWidth; ++lane) any |= found[lane];
    if (any)
      for (i = begin; i < end; ++i)
        if (non_finite(x[i])) return i;
  }
  return -1;
}

int64_t argmax(const float* x, int64_t n) {
  Vec best = set(x[0]);
  IntVec nan{};
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Vec v = load(x + i);
    nan |= v != v;
    best = max(v, best);
  }
  float top = reduce_max(best);
  int32_t any = 0;
  for (int lane = 0; lane < kWidth; ++lane) any |= nan[lane];
  for (; i < n; ++i) {
    any |= x[i] != x[i];
    if (x[i] > top) top = x[i];
  }
  for (i = 0; i < n; ++i)
    if (any ? x[i] != x[i] : x[i] == top) return i;
  return 0;
}

void add_rows(float* line, const float* x, int64_t rows, int64_t columns, int64_t ld) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float *a = x + r * ld, *b = a + ld, *c = b + ld, *d = c + ld;
    int64_t i = 0;
    for (; i + kWidth <= columns; i += kWidth)
      store(line + i, load(line + i) + ((load(a + i) + load(b + i)) + (load(c + i) + load(d + i))));
    for (; i < columns; ++i) line[i] += (a[i] + b[i]) + (c[i] + d[i]);
  }
  for (; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i) line[i] += x[r * ld + i];
}

}  // namespace

const ReduceLoops LOCKSTEP_LOOPS_TABLE(Reduce) = {sum, sum_of_squares, first_non_finite, argmax,
                                                  add_rows};

}  // namespace lockstep::cpu
