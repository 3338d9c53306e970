#include "core/kernels/cpu/reduce_loops.h"

#include "core/kernels/cpu/half_vec.h"

namespace lockstep::cpu {
namespace {

constexpr int kLanes = kWidth / 2;  // doubles in a vector

// Four vectors of doubles from 2 · kWidth elements, and one from one.
struct Floats {
  using Element = float;
  static void load(const float* x, DoubleVec* v) {
    for (int j = 0; j < 4; ++j) v[j] = load_double(x + j * kLanes);
  }
  static float one(const float* x) { return *x; }
};
template <class Code>
struct Codes {
  using Element = uint16_t;
  static void load(const uint16_t* x, DoubleVec* v) {
    alignas(64) float lanes[2 * kWidth];
    store(lanes, Code::widen(load_short(x)));
    store(lanes + kWidth, Code::widen(load_short(x + kWidth)));
    Floats::load(lanes, v);
  }
  static float one(const uint16_t* x) { return Code::widen(load_short_n(x, 1))[0]; }
};

template <class Source, class Term>
inline double accumulate(const typename Source::Element* x, int64_t n, Term term) {
  DoubleVec sums[4] = {}, v[4];
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    Source::load(x + i, v);
    for (int j = 0; j < 4; ++j) sums[j] += term(v[j]);
  }
  double sum = reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < n; ++i) sum += term(static_cast<double>(Source::one(x + i)));
  return sum;
}

template <class Source>
double sum(const typename Source::Element* x, int64_t n) {
  return accumulate<Source>(x, n, [](auto v) { return v; });
}
template <class Source>
double sum_of_squares(const typename Source::Element* x, int64_t n) {
  return accumulate<Source>(x, n, [](auto v) { return v * v; });
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

// A vector of n elements; n may be more than it has.
template <class Code>
struct Short {
  static Vec read(const uint16_t* x, int64_t n) {
    return Code::widen(n >= kWidth ? load_short(x) : load_short_n(x, n));
  }
  static void write(uint16_t* x, Vec v, int64_t n) {
    const ShortVec codes = Code::narrow(v);
    n >= kWidth ? store_short(x, codes) : store_short_n(x, codes, n);
  }
};
struct Plain {
  static Vec read(const float* x, int64_t n) { return n >= kWidth ? load(x) : load_n(x, n); }
  static void write(float* x, Vec v, int64_t n) { n >= kWidth ? store(x, v) : store_n(x, v, n); }
};

template <class Type, class Element>
void relu_backward(Element* dx, float* line, const Element* dy, const Element* y, int64_t rows,
                   int64_t columns) {
  const auto row = [&](int64_t at, int64_t n) {
    const Vec d = select(Type::read(y + at, n) > Vec{}, Type::read(dy + at, n), Vec{});
    Type::write(dx + at, d, n);
    return d;
  };
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4, dx += 4 * columns, dy += 4 * columns, y += 4 * columns)
    for (int64_t i = 0; i < columns; i += kWidth) {
      const int64_t n = columns - i;
      const Vec a = row(i, n), b = row(i + columns, n), c = row(i + 2 * columns, n),
                d = row(i + 3 * columns, n);
      Plain::write(line + i, Plain::read(line + i, n) + ((a + b) + (c + d)), n);
    }
  for (; r < rows; ++r, dx += columns, dy += columns, y += columns)
    for (int64_t i = 0; i < columns; i += kWidth)
      Plain::write(line + i, Plain::read(line + i, columns - i) + row(i, columns - i), columns - i);
}

}  // namespace

const ReduceLoops LOCKSTEP_LOOPS_TABLE(Reduce) = {
    {sum<Floats>, sum<Codes<Half>>, sum<Codes<Bfloat16>>},
    {sum_of_squares<Floats>, sum_of_squares<Codes<Half>>, sum_of_squares<Codes<Bfloat16>>},
    first_non_finite,
    argmax,
    add_rows,
    {relu_backward<Plain, float>, relu_backward<Short<Half>, uint16_t>,
     relu_backward<Short<Bfloat16>, uint16_t>}};

}  // namespace lockstep::cpu
