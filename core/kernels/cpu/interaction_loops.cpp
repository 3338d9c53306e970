#include "core/kernels/cpu/interaction_loops.h"

#include "core/kernels/cpu/vec.h"

namespace lockstep::cpu {
namespace {

// Rows of the triangle at a time: they share what is loaded, and their sums stay in registers.
#if defined(LOCKSTEP_ISA_Avx512)
constexpr int kRows = 8;
#else
constexpr int kRows = 4;
#endif

inline int64_t up(int64_t n) { return (n + kWidth - 1) / kWidth * kWidth; }
// Products of the pairs before row i of the triangle.
inline int64_t before(int64_t i) { return i * (i - 1) / 2; }

inline Vec get(const float* p, int64_t left) { return left >= kWidth ? load(p) : load_n(p, left); }
inline void put(float* p, Vec v, int64_t left) {
  left >= kWidth ? store(p, v) : store_n(p, v, left);
}

int64_t room(int64_t vectors, int64_t width) { return up(vectors) * width; }

// Rows [i, i + kRowsHere) of the triangle, columns [j, j + kVectors · kWidth): sums over d in
// order.
template <int kRowsHere, int kVectors>
inline void triangle(float* out, const float* x, const float* columns, int64_t i, int64_t j,
                     int64_t vectors, int64_t width) {
  const int64_t pitch = up(vectors);
  Vec sums[kRowsHere][kVectors] = {};
  for (int64_t d = 0; d < width; ++d) {
    Vec right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = load(columns + d * pitch + j + v * kWidth);
    for (int r = 0; r < kRowsHere; ++r) {
      const Vec left = set(x[(i + r) * width + d]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(left, right[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRowsHere; ++r)
    for (int v = 0; v < kVectors; ++v) {
      const int64_t column = j + v * kWidth, left = i + r - column;
      if (left > 0) put(out + before(i + r) + column, sums[r][v], left);
    }
}

template <int kRowsHere>
inline void rows_of_triangle(float* out, const float* x, const float* columns, int64_t i,
                             int64_t vectors, int64_t width) {
  const int64_t last = i + kRowsHere - 1;  // columns that some row here has
  int64_t j = 0;
  for (; last - j > kWidth; j += 2 * kWidth)
    triangle<kRowsHere, 2>(out, x, columns, i, j, vectors, width);
  if (j < last) triangle<kRowsHere, 1>(out, x, columns, i, j, vectors, width);
}

#if defined(LOCKSTEP_ISA_Avx512)
// Sixteen rows of sixteen at a time, in registers.
inline void transpose_block(float* columns, int64_t pitch, const float* x, int64_t width) {
  __m512 a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_ps(x + i * width);
  for (int i = 0; i < 16; i += 2) {
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28,
                                   13, 29);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27,
                                       14, 30, 15, 31);
  }
  for (int i = 0; i < 16; i += 4)
    for (int k = 0; k < 2; ++k) {
      a[i + 2 * k] = __builtin_shufflevector(b[i + k], b[i + k + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8,
                                             9, 24, 25, 12, 13, 28, 29);
      a[i + 2 * k + 1] = __builtin_shufflevector(b[i + k], b[i + k + 2], 2, 3, 18, 19, 6, 7, 22, 23,
                                                 10, 11, 26, 27, 14, 15, 30, 31);
    }
  // a[4 g + c] holds, in each quarter q, column 4 q + c of rows 4 g to 4 g + 3.
  for (int c = 0; c < 4; ++c) {
    const __m512 low = _mm512_maskz_shuffle_f32x4(0xffff, a[c], a[4 + c], 0x88),
                 high = _mm512_maskz_shuffle_f32x4(0xffff, a[8 + c], a[12 + c], 0x88),
                 low_odd = _mm512_maskz_shuffle_f32x4(0xffff, a[c], a[4 + c], 0xdd),
                 high_odd = _mm512_maskz_shuffle_f32x4(0xffff, a[8 + c], a[12 + c], 0xdd);
    _mm512_storeu_ps(columns + c * pitch, _mm512_maskz_shuffle_f32x4(0xffff, low, high, 0x88));
    _mm512_storeu_ps(columns + (8 + c) * pitch,
                     _mm512_maskz_shuffle_f32x4(0xffff, low, high, 0xdd));
    _mm512_storeu_ps(columns + (4 + c) * pitch,
                     _mm512_maskz_shuffle_f32x4(0xffff, low_odd, high_odd, 0x88));
    _mm512_storeu_ps(columns + (12 + c) * pitch,
                     _mm512_maskz_shuffle_f32x4(0xffff, low_odd, high_odd, 0xdd));
  }
}
#endif

// columns[d, j] = x[j, d]
inline void transpose(float* columns, int64_t pitch, const float* x, int64_t vectors,
                      int64_t width) {
  int64_t done = 0, wide = 0;  // rows and columns that went by blocks
#if defined(LOCKSTEP_ISA_Avx512)
  wide = width / 16 * 16;
  if (wide > 0 && vectors >= 16)
    for (; done < vectors; done += 16) {
      const int64_t at = done + 16 <= vectors ? done : vectors - 16;  // the last may overlap
      for (int64_t d = 0; d < wide; d += 16)
        transpose_block(columns + d * pitch + at, pitch, x + at * width + d, width);
    }
#endif
  for (int64_t j = 0; j < vectors; ++j)
    for (int64_t d = j < done ? wide : 0; d < width; ++d) columns[d * pitch + j] = x[j * width + d];
}

void forward(float* out, const float* x, float* columns, int64_t samples, int64_t vectors,
             int64_t width) {
  const int64_t pitch = up(vectors), out_width = width + before(vectors);
  for (int64_t k = 0; k < pitch * width; ++k) columns[k] = 0;
  for (int64_t b = 0; b < samples; ++b, x += vectors * width, out += out_width) {
    for (int64_t c = 0; c < width; c += kWidth) put(out + c, get(x + c, width - c), width - c);
    transpose(columns, pitch, x, vectors, width);
    int64_t i = 1;  // the short rows one by one, if any
    for (; (vectors - i) % kRows != 0; ++i)
      rows_of_triangle<1>(out + width, x, columns, i, vectors, width);
    for (; i < vectors; i += kRows)
      rows_of_triangle<kRows>(out + width, x, columns, i, vectors, width);
  }
}

// Columns [c, …) of rows [i, i + kRowsHere) of dx; kVectors 0: the last n columns.
template <int kRowsHere, int kVectors>
inline void gradient(float* dx, const float* pairs, const float* x, int64_t i, int64_t c, int64_t n,
                     int64_t vectors, int64_t width) {
  constexpr int kCount = kVectors == 0 ? 1 : kVectors;
  const auto read = [&](Vec* to, const float* p) {
    if constexpr (kVectors == 0)
      to[0] = load_n(p, n);
    else
      for (int v = 0; v < kCount; ++v) to[v] = load(p + v * kWidth);
  };
  Vec sums[kRowsHere][kCount] = {};
  const auto add = [&](int r, const Vec* right, float coefficient) {
    for (int v = 0; v < kCount; ++v) sums[r][v] = fma(set(coefficient), right[v], sums[r][v]);
  };
  Vec right[kCount];
  for (int64_t j = 0; j < i; ++j) {
    read(right, x + j * width + c);
    for (int r = 0; r < kRowsHere; ++r) add(r, right, pairs[before(i + r) + j]);
  }
  for (int64_t j = i; j < i + kRowsHere; ++j) {
    read(right, x + j * width + c);
    for (int r = 0; r < kRowsHere; ++r) {
      if (j < i + r) add(r, right, pairs[before(i + r) + j]);
      if (j > i + r) add(r, right, pairs[before(j) + i + r]);
    }
  }
  for (int64_t j = i + kRowsHere; j < vectors; ++j) {
    read(right, x + j * width + c);
    for (int r = 0; r < kRowsHere; ++r) add(r, right, pairs[before(j) + i + r]);
  }
  for (int r = 0; r < kRowsHere; ++r) {
    float* to = dx + (i + r) * width + c;
    if constexpr (kVectors == 0)
      store_n(to, sums[r][0], n);
    else
      for (int v = 0; v < kCount; ++v) store(to + v * kWidth, sums[r][v]);
  }
}

template <int kRowsHere>
inline void rows_of_gradient(float* dx, const float* pairs, const float* x, int64_t i,
                             int64_t vectors, int64_t width) {
  int64_t c = 0;
  for (; c + 2 * kWidth <= width; c += 2 * kWidth)
    gradient<kRowsHere, 2>(dx, pairs, x, i, c, 0, vectors, width);
  for (; c + kWidth <= width; c += kWidth)
    gradient<kRowsHere, 1>(dx, pairs, x, i, c, 0, vectors, width);
  if (c < width) gradient<kRowsHere, 0>(dx, pairs, x, i, c, width - c, vectors, width);
}

void backward(float* dx, const float* dout, const float* x, int64_t samples, int64_t vectors,
              int64_t width) {
  const int64_t out_width = width + before(vectors);
  for (int64_t b = 0; b < samples; ++b) {
    const float* pairs = dout + width;
    int64_t i = 0;
    for (; i + kRows <= vectors; i += kRows)
      rows_of_gradient<kRows>(dx, pairs, x, i, vectors, width);
    for (; i < vectors; ++i) rows_of_gradient<1>(dx, pairs, x, i, vectors, width);
    for (int64_t c = 0; c < width; c += kWidth)
      put(dx + c, get(dx + c, width - c) + get(dout + c, width - c), width - c);
    dx += vectors * width, x += vectors * width, dout += out_width;
  }
}

}  // namespace

const InteractionLoops LOCKSTEP_LOOPS_TABLE(Interaction) = {room, forward, backward};

}  // namespace lockstep::cpu
