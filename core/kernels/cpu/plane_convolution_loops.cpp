#include "core/kernels/cpu/plane_convolution_loops.h"

#include "core/kernels/cpu/tile_vec.h"

// Note [Planes with zeros around them]
// Lanes are neighbours in a plane, so that images are read and written as they lie. What a window
// reads is the plane moved by up to one row and one column; to read zeros beyond its edges, planes
// are copied into the middle of larger ones first. Rows of whole vectors lie there behind a vector
// of which the last place, and for the row before the first, is that zero. Other rows are shorter
// than a vector or do not divide: of such a plane there are three copies, moved left, in place and
// moved right, with zeros where a row's end was moved over, so that rows may follow each other
// without a gap and vectors span them.
//
// A tile of kOut planes by a few vectors is summed over all inputs and taps in registers: a vector
// of the input serves kOut sums, an element of the weights as many as there are vectors. For the
// gradient of the weights the same registers are kOut planes of dy by the three taps of a row, and
// the sum over places ends in a sum over lanes.
namespace lockstep::cpu {
namespace {

constexpr int kTaps = 9;
#if defined(LOCKSTEP_ISA_Avx512)
constexpr int kOut = 8;  // by three vectors: 24 sums, 3 of the input and a weight in 32 registers
#else
constexpr int kOut = 4;  // 12, 3 and 1 in 16
#endif
constexpr int kMostVecs = 3;

// Keeps v in a register: a compiler that reads it from memory again for every use makes loads, not
// products, what is waited for.
inline void keep(Vec& v) {
#if defined(LOCKSTEP_ISA_Avx512)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#endif
}

bool in_rows(int64_t columns) { return columns % kWidth == 0; }
int64_t pitch_of(int64_t columns) { return in_rows(columns) ? columns + kWidth : columns; }
int64_t copy_of(int64_t rows, int64_t columns) {
  return (rows + 2) * pitch_of(columns) + kWidth;  // behind the last row, too
}

bool fits(int64_t rows, int64_t columns) { return columns >= 2 && rows * columns % kWidth == 0; }
int64_t padded(int64_t rows, int64_t columns) {
  return (in_rows(columns) ? 1 : 3) * copy_of(rows, columns);
}

void pad(float* to, int64_t step, const float* x, int64_t planes, int64_t rows, int64_t columns) {
  const int64_t copy = copy_of(rows, columns), pitch = pitch_of(columns), n = rows * columns;
  for (int64_t plane = 0; plane < planes; ++plane, x += n, to += step) {
    if (in_rows(columns)) {
      float* row = to + pitch + kWidth;
      for (int64_t r = 0; r < rows; ++r, row += pitch)
        for (int64_t i = 0; i < columns; i += kWidth) store(row + i, load(x + r * columns + i));
      continue;
    }
    float* copies = to + kWidth;
    for (int moved = 0; moved < 3; ++moved) {
      float* at = copies + moved * copy + columns + 1 - moved;
      for (int64_t i = 0; i < n; i += kWidth) store(at + i, load(x + i));
    }
    float *left = copies + columns, *right = copies + 2 * copy + columns - 1;
    for (int64_t r = 0; r <= rows; ++r, left += columns, right += columns) *left = *right = 0;
  }
}

// Where a window's elements are, seen from where a vector of the result would be.
struct Taps {
  int64_t row, column, first;
  Taps(int64_t rows, int64_t columns)
      : row(pitch_of(columns)),
        column(in_rows(columns) ? 1 : copy_of(rows, columns)),
        first(in_rows(columns) ? kWidth - 1 : kWidth) {}
  int64_t operator()(int u, int v) const { return first + u * row + v * column; }
};
// Where the vector that begins at element i of a plane is in a padded one, row 0 being zeros.
inline int64_t place(int64_t i, int64_t columns) {
  return in_rows(columns) ? i + i / columns * kWidth : i;
}

int64_t packed(int64_t in, int64_t out) { return round_up(out, kOut) * in * kTaps; }

void pack(float* to, const float* w, int64_t in, int64_t out, int64_t out_step, int64_t in_step,
          int64_t first, int64_t tap_step) {
  for (int64_t k = 0; k < out; k += kOut)
    for (int64_t c = 0; c < in; ++c)
      for (int tap = 0; tap < kTaps; ++tap)
        for (int r = 0; r < kOut; ++r)
          *to++ = k + r < out ? w[(k + r) * out_step + c * in_step + first + tap * tap_step] : 0.0f;
}

struct Window {
  int64_t tap[kTaps];
  int64_t plane;  // of padded ones
};

template <int kVecs>
[[gnu::always_inline]] inline void tile(float* y, int64_t y_plane, int64_t outputs,
                                        const float* const (&from)[kMostVecs], const Window& window,
                                        int64_t in, const float* weight, const float* bias) {
  Vec sums[kOut][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kOut; ++r)
#pragma GCC unroll 3
    for (int j = 0; j < kVecs; ++j)
      sums[r][j] = bias != nullptr && r < outputs ? set(bias[r]) : Vec{};
  const float* x[kVecs];
#pragma GCC unroll 3
  for (int j = 0; j < kVecs; ++j) x[j] = from[j];
  for (int64_t c = 0; c < in; ++c) {
#pragma GCC unroll 9
    for (int tap = 0; tap < kTaps; ++tap) {
      const int64_t at = window.tap[tap];
      Vec line[kVecs];
#pragma GCC unroll 3
      for (int j = 0; j < kVecs; ++j) line[j] = load(x[j] + at);
#pragma GCC unroll 8
      for (int r = 0; r < kOut; ++r) {
        Vec w = set(weight[tap * kOut + r]);
        if (kVecs > 1) keep(w);
#pragma GCC unroll 3
        for (int j = 0; j < kVecs; ++j) sums[r][j] = fma(w, line[j], sums[r][j]);
      }
    }
    weight += kTaps * kOut;
#pragma GCC unroll 3
    for (int j = 0; j < kVecs; ++j) x[j] += window.plane;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kOut; ++r)
    if (r < outputs)
#pragma GCC unroll 3
      for (int j = 0; j < kVecs; ++j) store(y + r * y_plane + j * kWidth, sums[r][j]);
}

Window window_of(int64_t rows, int64_t columns) {
  const Taps taps(rows, columns);
  Window window{};
  for (int u = 0; u < 3; ++u)
    for (int v = 0; v < 3; ++v) window.tap[3 * u + v] = taps(u, v);
  window.plane = padded(rows, columns);
  return window;
}

void convolve(float* y, const float* planes, const float* weights, const float* bias,
              const PlaneShape& s) {
  const int64_t n = s.rows * s.columns, vectors = n / kWidth;
  const Window window = window_of(s.rows, s.columns);
  for (int64_t i = 0; i < vectors;) {
    const int64_t left = vectors - i, take = left == 4 || left == 2 ? 2 : left == 1 ? 1 : 3;
    const float* from[kMostVecs] = {};
    for (int64_t j = 0; j < take; ++j) from[j] = planes + place((i + j) * kWidth, s.columns);
    for (int64_t k = 0; k < s.out; k += kOut) {
      float* to = y + k * n + i * kWidth;
      const float* weight = weights + k * s.in * kTaps;
      const float* of_k = bias == nullptr ? nullptr : bias + k;
      const int64_t outputs = s.out - k;
      if (take == 3)
        tile<3>(to, n, outputs, from, window, s.in, weight, of_k);
      else if (take == 2)
        tile<2>(to, n, outputs, from, window, s.in, weight, of_k);
      else
        tile<1>(to, n, outputs, from, window, s.in, weight, of_k);
    }
    i += take;
  }
}

// Vectors of dy, of all images together, after which sums go from lanes into one: a plane of each
// of kOut outputs and one of the input then stay in the first-level cache.
constexpr int64_t kVectorsTogether = 48;
int64_t images_together(int64_t rows, int64_t columns) {
  const int64_t vectors = rows * columns / kWidth;
  return vectors >= kVectorsTogether ? 1 : kVectorsTogether / vectors;
}
int64_t weight_room(int64_t images, int64_t rows, int64_t columns) {
  return images > 1 ? images * kOut * rows * columns : 0;
}

// kOut planes of dy of several images: plane r of image i begins at data + i * image + r * plane.
struct PlanesOfDy {
  const float* data;
  int64_t image, plane;
};
// The last ones again where there are fewer. Those of several images go into `room`, for they may
// lie a power of two apart, which would put them into the same few lines of the cache.
PlanesOfDy planes_of_dy(const float* dy, int64_t images, int64_t image, int64_t n, int64_t outputs,
                        float* room) {
  if (images == 1) return {dy, 0, n};
  for (int64_t i = 0; i < images; ++i)
    for (int64_t r = 0; r < outputs; ++r)
      for (int64_t j = 0; j < n; j += kWidth)
        store(room + (i * kOut + r) * n + j, load(dy + i * image + r * n + j));
  return {room, kOut * n, n};
}

// Sums of kOut outputs and one input: element tap * kOut + r, in whole vectors.
constexpr int kSums = (kTaps * kOut + kWidth - 1) / kWidth * kWidth;
int64_t sums_of(int64_t in, int64_t out) { return (out + kOut - 1) / kOut * in * kSums; }

// The taps of one row: x is where the first of them sees the first vector, `row` how many vectors
// follow each other there before `gap` is left out.
struct RowOfTaps {
  const float* x;
  int64_t image, column, row, gap;
};

// sums[v * kOut + r] = Σ dy(plane r) · x(tap v) over all places, a lane each.
inline void row_sums(Vec* sums, const PlanesOfDy& dy, int64_t outputs, const RowOfTaps& taps,
                     int64_t images, int64_t n) {
  Vec of[3][kOut] = {};
  const float* d[kOut];
#pragma GCC unroll 8
  for (int r = 0; r < kOut; ++r) d[r] = dy.data + least(r, outputs - 1) * dy.plane;
  for (int64_t image = 0; image < images; ++image) {
    const float* x = taps.x + image * taps.image;
    int64_t left = taps.row;
    const int64_t begin = image * dy.image, end = begin + n;
    for (int64_t i = begin; i < end; i += kWidth) {
      Vec line[3];
#pragma GCC unroll 3
      for (int v = 0; v < 3; ++v) line[v] = load(x + v * taps.column);
#pragma GCC unroll 8
      for (int r = 0; r < kOut; ++r) {
        Vec one = load(d[r] + i);
        keep(one);
#pragma GCC unroll 3
        for (int v = 0; v < 3; ++v) of[v][r] = fma(one, line[v], of[v][r]);
      }
      x += kWidth;
      if (--left == 0) left = taps.row, x += taps.gap;
    }
  }
#pragma GCC unroll 3
  for (int v = 0; v < 3; ++v)
#pragma GCC unroll 8
    for (int r = 0; r < kOut; ++r) sums[v * kOut + r] = of[v][r];
}

void weight_sums(float* sums, const float* dy, const float* planes, int64_t images,
                 const PlaneShape& s, float* room) {
  const int64_t n = s.rows * s.columns, plane = padded(s.rows, s.columns);
  const Taps taps(s.rows, s.columns);
  const bool rows = in_rows(s.columns);
  Vec all[kSums] = {};
  for (int64_t k = 0; k < s.out; k += kOut) {
    const int64_t outputs = least(kOut, s.out - k);
    const PlanesOfDy from = planes_of_dy(dy + k * n, images, s.out * n, n, outputs, room);
    for (int64_t c = 0; c < s.in; ++c) {
      for (int u = 0; u < 3; ++u)
        row_sums(all + 3 * u * kOut, from, outputs,
                 {planes + c * images * plane + taps(u, 0), plane, taps.column,
                  rows ? s.columns / kWidth : n / kWidth, rows ? kWidth : 0},
                 images, n);
      float* to = sums + (k / kOut * s.in + c) * kSums;
      for (int i = 0; i < kSums; i += kWidth) {
        Vec lines[kWidth];
#pragma GCC unroll 16
        for (int j = 0; j < kWidth; ++j) lines[j] = all[i + j];
        store(to + i, load(to + i) + fold_lines(lines, [](Vec a, Vec b) { return a + b; }));
      }
    }
  }
}

void take_sums(float* dweight, const float* sums, int64_t in, int64_t out) {
  for (int64_t k = 0; k < out; ++k)
    for (int64_t c = 0; c < in; ++c)
      for (int tap = 0; tap < kTaps; ++tap)
        *dweight++ += sums[(k / kOut * in + c) * kSums + tap * kOut + k % kOut];
}

}  // namespace

const PlaneConvolutionLoops LOCKSTEP_LOOPS_TABLE(PlaneConvolution) = {
    fits,        padded,  pad,         packed,   pack, convolve, images_together,
    weight_room, sums_of, weight_sums, take_sums};

}  // namespace lockstep::cpu
