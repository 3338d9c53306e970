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

/// Panels of B[k, n] = x, whose rows lie `row` apart, times `scale`; columns beyond n are zeros.
inline void pack(float* panels, const float* x, int64_t row, int64_t k, int64_t n, float scale) {
  for (int64_t j = 0; j < n; j += kPanel, panels += k * kPanel)
    for (int64_t i = 0; i < k; ++i)
      for (int v = 0; v < kPanel; v += kWidth) {
        const int64_t left = n - j - v;
        const float* at = x + i * row + j + v;
        const Vec line = left >= kWidth ? load(at) : left > 0 ? load_n(at, left) : Vec{};
        store(panels + i * kPanel + v, line * set(scale));
      }
}

/// Panels of B[k, n] = transposed x[n, k].
inline void pack_transposed(float* panels, const float* x, int64_t row, int64_t k, int64_t n) {
  for (int64_t j = 0; j < n; j += kPanel, panels += k * kPanel)
    for (int64_t c = 0; c < kPanel; ++c)
      for (int64_t i = 0; i < k; ++i)
        panels[i * kPanel + c] = j + c < n ? x[(j + c) * row + i] : 0.0f;
}

}  // namespace
}  // namespace lockstep::cpu
