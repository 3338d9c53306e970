#pragma once
#include "core/kernels/cpu/half_vec.h"
#include "core/kernels/cpu/product_loops.h"
#include "core/kernels/cpu/tile_vec.h"

/// How the operands of matrix products are packed, widened to f32 on the way. Include in
/// product_loops.cpp only.
namespace lockstep::cpu {
namespace {

constexpr int kRows = kTileRows, kColumns = kPanel;
constexpr int kLine = (kRows + kWidth - 1) / kWidth * kWidth;  // a column of packed A

constexpr int64_t kDepth = 512;             // of k at a time
constexpr int64_t kPackedFloats = 3 << 16;  // of B at a time: 768 KiB
constexpr int64_t kBlockRows = 8 * kRows;   // of A stored as columns, packed at a time
constexpr int64_t kRowStep = kDepth + 16;   // of A's copied rows: not a power of two

struct Float {
  using Element = float;
  static Vec widen(const float* p) { return load(p); }
  static Vec widen_n(const float* p, int64_t n) { return load_n(p, n); }
  static void narrow(float* p, Vec v) { store(p, v); }
  static void narrow(float* p, Vec a, Vec b) {
    store(p, a);
    store(p + kWidth, b);
  }
  static void narrow_n(float* p, Vec v, int64_t n) { store_n(p, v, n); }
};
template <class Code>
struct Short {
  using Element = uint16_t;
  static Vec widen(const uint16_t* p) { return Code::widen(load_short(p)); }
  static Vec widen_n(const uint16_t* p, int64_t n) { return Code::widen(load_short_n(p, n)); }
  static void narrow(uint16_t* p, Vec v) { store_short(p, Code::narrow(v)); }
  static void narrow(uint16_t* p, Vec a, Vec b) { store_pair(p, Code::narrow(a, b)); }
  static void narrow_n(uint16_t* p, Vec v, int64_t n) { store_short_n(p, Code::narrow(v), n); }
};

// Stretches of equal length, multiples of `unit`, none longer than `most`.
inline int64_t stretch(int64_t extent, int64_t most, int64_t unit) {
  const int64_t count = (extent + most - 1) / most;
  return round_up((extent + count - 1) / count, unit);
}
inline int64_t depth_of(int64_t k) { return k > kDepth ? stretch(k, kDepth, 1) : k; }
template <class Code>
inline Vec up_to(const typename Code::Element* p, int64_t n) {
  return n >= kWidth ? Code::widen(p) : n > 0 ? Code::widen_n(p, n) : Vec{};
}

// Columns of B (or rows of A) are packed in panels of so many: first the first elements of all of
// them, then the second ones. `width` is `lines` up to a whole vector.
struct Panels {
  int64_t lines, width;
  // From one panel to the next: a line of the cache more than it holds, so that their beginnings
  // do not all compete for the same places in it.
  constexpr int64_t step(int64_t depth) const { return depth * width + 16; }
};

constexpr Panels kPanelsOfA{kRows, kLine}, kPanelsOfB{kColumns, kColumns};

inline int64_t most_columns(int64_t depth) {
  return kPackedFloats / kPanelsOfB.step(depth) * kColumns;
}

constexpr int64_t kPackedFloatsOfA = kBlockRows / kRows * kPanelsOfA.step(kDepth);
static_assert(kPackedFloatsOfA >= kRows * kRowStep);

// Lines whose elements are neighbours, `depth` of each; lines lie `apart`.
template <class Code>
void pack_lines(float* to, Panels panels, const typename Code::Element* x, int64_t apart,
                int64_t lines, int64_t depth) {
  for (; lines > 0; lines -= panels.lines, x += panels.lines * apart, to += panels.step(depth))
    for (int64_t c = 0; c < panels.width; c += kWidth)
      for (int64_t i = 0; i < depth; i += kWidth) {
        Vec v[kWidth];
#pragma GCC unroll 16
        for (int r = 0; r < kWidth; ++r)
          v[r] = c + r < lines ? up_to<Code>(x + (c + r) * apart + i, depth - i) : Vec{};
        transpose(v);
        for (int r = 0; r < kWidth && i + r < depth; ++r)
          store(to + (i + r) * panels.width + c, v[r]);
      }
}
// Lines that are neighbours of each other; the elements of one lie `apart`. All panels are written
// side by side, so that neighbours are read in one go.
template <class Code, Panels kPanels>
void pack_across(float* to, const typename Code::Element* x, int64_t apart, int64_t lines,
                 int64_t depth) {
  constexpr int64_t kAhead = 16, kInLine = 64 / sizeof(*x);
  for (int64_t i = 0; i < depth; ++i, x += apart) {
    float* row = to + i * kPanels.width;
    int64_t line = 0;
    for (; line + kPanels.width <= lines; line += kPanels.lines, row += kPanels.step(depth)) {
#pragma GCC unroll 2
      for (int64_t c = 0; c < kPanels.width; c += kInLine)
        __builtin_prefetch(x + kAhead * apart + line + c);
#pragma GCC unroll 2
      for (int64_t c = 0; c < kPanels.width; c += kWidth) {
        __builtin_prefetch(row + 2 * kPanels.width + c, 1);  // stores wait for their line, too
        store(row + c, Code::widen(x + line + c));
      }
    }
    for (; line < lines; line += kPanels.lines, row += kPanels.step(depth)) {
      __builtin_prefetch(x + kAhead * apart + line);
#pragma GCC unroll 2
      for (int64_t c = 0; c < kPanels.width; c += kWidth)
        store(row + c, up_to<Code>(x + line + c, lines - line - c));
    }
  }
}
// Rows as they lie, kRowStep apart, and rows of zeros up to `tall` of them.
template <class Code>
void copy_rows(float* to, const typename Code::Element* x, int64_t apart, int64_t rows,
               int64_t tall, int64_t depth) {
  for (int64_t r = 0; r < tall; ++r, to += kRowStep, x += apart)
    for (int64_t i = 0; i < depth; i += kWidth) {
      __builtin_prefetch(x + kRows * apart + i);
      store(to + i, r < rows ? up_to<Code>(x + i, depth - i) : Vec{});
    }
}

inline int64_t bytes_of(FloatCode code) { return code == FloatCode::f32 ? 4 : 2; }
template <class F>
void with_code(FloatCode code, F f) {
  if (code == FloatCode::f32) return f(Float{});
  if (code == FloatCode::f16) return f(Short<Half>{});
  return f(Short<Bfloat16>{});
}

}  // namespace
}  // namespace lockstep::cpu
