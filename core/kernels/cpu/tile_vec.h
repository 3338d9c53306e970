#pragma once
#include "core/kernels/cpu/vec.h"

/// Matrix products from registers, tile by tile. B is packed into panels of kPanel columns, each
/// [k, kPanel] in one piece, so that the inner loop reads straight on: by the functions here for
/// attention, by those of product_loops.cpp for kernel::matmul. Include in *_loops.cpp only.
namespace lockstep::cpu {
namespace {

constexpr int kTileVecs = 2;
constexpr int kPanel = kTileVecs * kWidth;  // columns of a panel, and of a tile
#if defined(LOCKSTEP_ISA_Avx512)
constexpr int kTileRows = 12;  // 24 sums, 2 vectors of B and an element of A in 32 registers
#else
constexpr int kTileRows = 6;  // 12, 2 and 1 in 16
#endif
constexpr int kRowUnit = kTileRows / 3;  // the last tiles have one, two or three times as many

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// The rows of A under a tile: element (r, i) at data[r * row + i * column]; one of the steps is 1.
struct RowsOfA {
  const float* data;
  int64_t row, column;
};

template <int kTall, int kVecs = kTileVecs>
using Sums = Vec[kTall][kVecs];

/// sums = A[kTall, depth] · B[depth, kVecs · kWidth]; B's rows lie b_row apart.
template <int kTall, int kVecs>
[[gnu::always_inline]] inline void multiply(Sums<kTall, kVecs>& sums, RowsOfA a, const float* b,
                                            int64_t b_row, int64_t depth) {
#pragma GCC unroll 12
  for (int r = 0; r < kTall; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sums[r][v] = Vec{};
  const auto add = [&](auto element) __attribute__((always_inline)) {
    Vec line[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) line[v] = load(b + v * kWidth);
    b += b_row;
#pragma GCC unroll 12
    for (int r = 0; r < kTall; ++r) {
      const Vec x = set(element(r));
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sums[r][v] = fma(x, line[v], sums[r][v]);
    }
  };
  if (a.row == 1) {
    const float* x = a.data;
#pragma GCC unroll 4
    for (int64_t i = 0; i < depth; ++i, x += a.column) add([&](int r) { return x[r]; });
    return;
  }
  // Three rows to a pointer: as many as an address can reach by adding the step or twice the step.
  constexpr int kPointers = (kTall + 2) / 3;
  const float* rows[kPointers];
#pragma GCC unroll 4
  for (int p = 0; p < kPointers; ++p) rows[p] = a.data + 3 * p * a.row;
#pragma GCC unroll 4
  for (int64_t i = 0; i < depth; ++i) add([&](int r) { return rows[r / 3][r % 3 * a.row + i]; });
}

inline Vec load_up_to(const float* p, int64_t n) {
  return n >= kWidth ? load(p) : n > 0 ? load_n(p, n) : Vec{};
}

/// Panels of B[k, n] = x, whose rows lie `row` apart; columns beyond n are zeros. All panels are
/// written side by side, so that a row is read in one go.
inline void pack(float* panels, const float* x, int64_t row, int64_t k, int64_t n) {
  for (int64_t i = 0; i < k; ++i, x += row, panels += kPanel) {
    float* to = panels;
    int64_t j = 0;
    for (; j + kPanel <= n; j += kPanel, to += k * kPanel)
      for (int v = 0; v < kPanel; v += kWidth) store(to + v, load(x + j + v));
    if (j < n)
      for (int v = 0; v < kPanel; v += kWidth) store(to + v, load_up_to(x + j + v, n - j - v));
  }
}

/// The first and the second half of the lanes of a and b, taken in turn.
inline Vec zip_low(Vec a, Vec b) {
#if defined(LOCKSTEP_ISA_Avx512)
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif defined(LOCKSTEP_ISA_Avx2)
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#endif
}
inline Vec zip_high(Vec a, Vec b) {
#if defined(LOCKSTEP_ISA_Avx512)
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
#elif defined(LOCKSTEP_ISA_Avx2)
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

/// A square of kWidth vectors, transposed: as many rounds of perfect shuffles as the width has
/// bits.
inline void transpose(Vec (&v)[kWidth]) {
#pragma GCC unroll 4
  for (int round = 1; round < kWidth; round *= 2) {
    Vec w[kWidth];
#pragma GCC unroll 8
    for (int i = 0; i < kWidth / 2; ++i) {
      w[2 * i] = zip_low(v[i], v[i + kWidth / 2]);
      w[2 * i + 1] = zip_high(v[i], v[i + kWidth / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) v[i] = w[i];
  }
}

/// kWidth vectors folded into one, whose lane i is the fold of vector i: the rounds of a transpose,
/// halved. The order is fixed by the instruction set.
template <class Fold>
inline Vec fold_lines(Vec (&v)[kWidth], Fold fold) {
#pragma GCC unroll 4
  for (int half = kWidth / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i)
      v[i] = fold(zip_low(v[i], v[i + half]), zip_high(v[i], v[i + half]));
  return v[0];
}

/// Panels of B[k, n] = transposed x[n, k], whose rows lie `row` apart; columns beyond n are zeros.
inline void pack_transposed(float* panels, const float* x, int64_t row, int64_t k, int64_t n) {
  for (int64_t j = 0; j < n; j += kWidth) {
    float* to = panels + j / kPanel * kPanel * k + j % kPanel;
    const float* from = x + j * row;
    for (int64_t i = 0; i < k; i += kWidth, to += kWidth * kPanel, from += kWidth) {
      Vec v[kWidth];
      if (j + kWidth <= n && i + kWidth <= k) {
#pragma GCC unroll 16
        for (int r = 0; r < kWidth; ++r) v[r] = load(from + r * row);
        transpose(v);
#pragma GCC unroll 16
        for (int r = 0; r < kWidth; ++r) store(to + r * kPanel, v[r]);
      } else {
        for (int r = 0; r < kWidth; ++r)
          v[r] = j + r < n ? load_up_to(from + r * row, k - i) : Vec{};
        transpose(v);
        for (int r = 0; r < kWidth && i + r < k; ++r) store(to + r * kPanel, v[r]);
      }
    }
    // The columns that a panel has beyond the last of these squares.
    if (j % kPanel == 0 && j + kWidth >= n)
      for (int64_t i = 0; i < k; ++i) store(panels + j * k + i * kPanel + kWidth, Vec{});
  }
}

}  // namespace
}  // namespace lockstep::cpu
