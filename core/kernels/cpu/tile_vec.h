#pragma once
#include "core/kernels/cpu/vec.h"

/// Small matrix products from registers. B is packed into panels of kPanel columns, each [k,
/// kPanel] in one piece, so that the inner loop reads straight on. Include in *_loops.cpp only.
namespace lockstep::cpu {
namespace {

constexpr int kPanel = 2 * kWidth;  // columns of a panel
constexpr int kBlock = 8;           // rows of a product
#if defined(LOCKSTEP_ISA_Avx512)
constexpr int kTileRows = 8;  // 16 sums in 32 registers
#else
constexpr int kTileRows = 4;  // 8 sums in 16 registers
#endif

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

enum class Store { overwrite, add };

// C[kTileRows, kVecs · kWidth] of one tile. A(r, k) lies at a[r · row + k · column].
template <int kVecs>
inline void tile(float* c, int64_t ldc, const float* a, int64_t row, int64_t column, const float* b,
                 int64_t k, Store mode) {
  Vec sums[kTileRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v)
      sums[r][v] = mode == Store::add ? load(c + r * ldc + v * kWidth) : Vec{};
  for (int64_t i = 0; i < k; ++i) {
    Vec line[kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) line[v] = load(b + i * kPanel + v * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
      const Vec x = set(a[r * row + i * column]);
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) sums[r][v] = fma(x, line[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) store(c + r * ldc + v * kWidth, sums[r][v]);
}

/// C[kBlock, n] = or += A[kBlock, k] · B[k, n]; n is a multiple of kWidth, `depth` the rows that a
/// whole panel of B has.
inline void block_product(float* c, int64_t ldc, const float* a, int64_t row, int64_t column,
                          const float* panels, int64_t depth, int64_t k, int64_t n, Store mode) {
  for (int64_t j = 0; j < n; j += kPanel) {
    const float* b = panels + j * depth;
    for (int r = 0; r < kBlock; r += kTileRows) {
      if (n - j >= kPanel)
        tile<2>(c + r * ldc + j, ldc, a + r * row, row, column, b, k, mode);
      else
        tile<1>(c + r * ldc + j, ldc, a + r * row, row, column, b, k, mode);
    }
  }
}

inline Vec load_up_to(const float* p, int64_t n) {
  return n >= kWidth ? load(p) : n > 0 ? load_n(p, n) : Vec{};
}

/// Panels of B[k, n] = x, whose rows lie `row` apart; columns beyond n are zeros.
inline void pack(float* panels, const float* x, int64_t row, int64_t k, int64_t n) {
  for (int64_t j = 0; j < n; j += kPanel, panels += k * kPanel)
    for (int64_t i = 0; i < k; ++i)
      for (int v = 0; v < kPanel; v += kWidth)
        store(panels + i * kPanel + v, load_up_to(x + i * row + j + v, n - j - v));
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

/// Panels of B[k, n] = transposed x[n, k], whose rows lie `row` apart; columns beyond n are zeros.
inline void pack_transposed(float* panels, const float* x, int64_t row, int64_t k, int64_t n) {
  for (int64_t j = 0; j < n; j += kPanel, panels += k * kPanel)
    for (int64_t c = 0; c < kPanel; c += kWidth)
      for (int64_t i = 0; i < k; i += kWidth) {
        Vec v[kWidth];
#pragma GCC unroll 16
        for (int r = 0; r < kWidth; ++r)
          v[r] = j + c + r < n ? load_up_to(x + (j + c + r) * row + i, k - i) : Vec{};
        transpose(v);
        for (int r = 0; r < kWidth && i + r < k; ++r) store(panels + (i + r) * kPanel + c, v[r]);
      }
}

}  // namespace
}  // namespace lockstep::cpu
