#include "core/kernels/cpu/product_loops.h"

#include "core/kernels/cpu/half_vec.h"
#include "core/kernels/cpu/tile_vec.h"

// Note [A product from registers]
// A register tile of C, kRows x kColumns, is summed over a stretch of k, then added to what earlier
// stretches gave. B's columns are read from a packed copy of them, which serves all rows and stays
// in the second-level cache; A's rows, of one tile at a time, from where they lie or, where they
// are stored as columns or are not f32, from a copy that stays in the first. Packing widens f16 and
// bf16 on the way, so that they cost next to nothing more than f32, and only half the reading.
// (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008.)
namespace lockstep::cpu {
namespace {

constexpr int kRows = kTileRows, kColumns = kPanel, kVecs = kTileVecs;
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
  static void narrow_n(float* p, Vec v, int64_t n) { store_n(p, v, n); }
};
template <class Code>
struct Short {
  using Element = uint16_t;
  static Vec widen(const uint16_t* p) { return Code::widen(load_short(p)); }
  static Vec widen_n(const uint16_t* p, int64_t n) { return Code::widen(load_short_n(p, n)); }
  static void narrow(uint16_t* p, Vec v) { store_short(p, Code::narrow(v)); }
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
template <class Code>
void pack_across(float* to, Panels panels, const typename Code::Element* x, int64_t apart,
                 int64_t lines, int64_t depth) {
  for (int64_t i = 0; i < depth; ++i, x += apart) {
    float* row = to + i * panels.width;
    for (int64_t line = 0; line < lines; line += panels.lines, row += panels.step(depth))
      for (int64_t c = 0; c < panels.width; c += kWidth) {
        __builtin_prefetch(x + 16 * apart + line + c);
        store(row + c, up_to<Code>(x + line + c, lines - line - c));
      }
  }
}
// Rows as they lie, kRowStep apart, and rows of zeros up to `tall` of them.
template <class Code>
void copy_rows(float* to, const typename Code::Element* x, int64_t apart, int64_t rows,
               int64_t tall, int64_t depth) {
  for (int64_t r = 0; r < tall; ++r, to += kRowStep, x += apart)
    for (int64_t i = 0; i < depth; i += kWidth)
      store(to + i, r < rows ? up_to<Code>(x + i, depth - i) : Vec{});
}

template <class F>
void with_code(FloatCode code, F f) {
  if (code == FloatCode::f32) return f(Float{});
  if (code == FloatCode::f16) return f(Short<Half>{});
  return f(Short<Bfloat16>{});
}

// The columns of B under a row of tiles: element (i, j) of panel p at
// data[i * kColumns + j + p * panel].
struct ColumnsOfB {
  const float* data;
  int64_t panel;
};

// B[from.., column..], `depth` rows and so many columns.
ColumnsOfB read_b(const ProductPart& p, int64_t from, int64_t column, int64_t depth,
                  int64_t columns, float* room) {
  const ProductOperand& b = p.b;
  const int64_t at = from * b.row + column * b.column;
  with_code(b.code, [&](auto code) {
    using Code = decltype(code);
    const auto* x = static_cast<const typename Code::Element*>(b.data) + at;
    if (b.column == 1)
      pack_across<Code>(room, kPanelsOfB, x, b.row, columns, depth);
    else
      pack_lines<Code>(room, kPanelsOfB, x, b.column, columns, depth);
  });
  return {room, kPanelsOfB.step(depth)};
}

// A[row.., from..] with `depth` columns, for tiles from the top to the bottom.
RowsOfA read_a(const ProductPart& p, int64_t row, int64_t from, int64_t rows, int64_t depth,
               float* room) {
  const ProductOperand& a = p.a;
  const int64_t at = row * a.row + from * a.column, tall = round_up(rows, kRowUnit);
  if (a.code == FloatCode::f32 && rows == tall && a.column == 1)
    return {static_cast<const float*>(a.data) + at, a.row, a.column};
  if (a.column == 1) {
    with_code(a.code, [&](auto code) {
      using Code = decltype(code);
      copy_rows<Code>(room, static_cast<const typename Code::Element*>(a.data) + at, a.row, rows,
                      tall, depth);
    });
    return {room, kRowStep, 1};
  }
  const int64_t in_block = row % kBlockRows;
  if (in_block == 0)
    with_code(a.code, [&](auto code) {
      using Code = decltype(code);
      pack_across<Code>(room, kPanelsOfA, static_cast<const typename Code::Element*>(a.data) + at,
                        a.column, least(kBlockRows, p.m - row), depth);
    });

  return {room + in_block / kRows * kPanelsOfA.step(depth), 1, kLine};
}

// Where a row of tiles begins in a matrix; rows lie `row` apart.
struct Place {
  void* data;
  FloatCode code;
  int64_t row;
};
// What becomes of the sums of a tile.
struct Finish {
  Place add;  // f32 or of out's code; null: nothing to add
  const float* bias;
  bool relu;
  Place out;
};

template <class To>
inline void finish_row(const Finish& f, int64_t row, int64_t column, Vec sum, int64_t n) {
  if (f.add.data != nullptr) {
    const int64_t at = row * f.add.row + column;
    sum += f.add.code == FloatCode::f32
               ? up_to<Float>(static_cast<const float*>(f.add.data) + at, n)
               : up_to<To>(static_cast<const typename To::Element*>(f.add.data) + at, n);
  }
  if (f.bias != nullptr) sum += up_to<Float>(f.bias + column, n);
  if (f.relu) sum = select(sum < Vec{}, Vec{}, sum);
  auto* out = static_cast<typename To::Element*>(f.out.data) + row * f.out.row + column;
  if (n >= kWidth)
    To::narrow(out, sum);
  else
    To::narrow_n(out, sum, n);
}

template <class To, int kTall>
inline void tile(const Finish& f, int64_t column, RowsOfA a, const ColumnsOfB& b, int64_t depth,
                 int64_t rows, int64_t columns) {
  Sums<kTall> sums;
#pragma GCC unroll 12
  for (int r = 0; r < kTall; ++r) {  // C arrives while its sums are made
    auto* c = static_cast<typename To::Element*>(f.out.data) + r * f.out.row + column;
    __builtin_prefetch(c, 1);
    if (sizeof(*c) == 4) __builtin_prefetch(c + kWidth, 1);
  }
  multiply<kTall, kVecs>(sums, a, b.data + column / kColumns * b.panel, kColumns, depth);
  if (rows == kTall && columns == kColumns) {
#pragma GCC unroll 12
    for (int r = 0; r < kTall; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) finish_row<To>(f, r, column + v * kWidth, sums[r][v], kWidth);
    return;
  }
  alignas(64) float kept[kTall * kColumns];
#pragma GCC unroll 12
  for (int r = 0; r < kTall; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) store(kept + r * kColumns + v * kWidth, sums[r][v]);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < columns; j += kWidth)
      finish_row<To>(f, r, column + j, load(kept + r * kColumns + j), columns - j);
}

// One row of tiles.
template <class To, int kTall>
void tiles(const Finish& f, RowsOfA a, const ColumnsOfB& b, int64_t depth, int64_t rows,
           int64_t columns) {
  for (int64_t j = 0; j < columns; j += kColumns)
    tile<To, kTall>(f, j, a, b, depth, rows, least(kColumns, columns - j));
}
template <class To>
void tiles_of(const Finish& f, RowsOfA a, const ColumnsOfB& b, int64_t depth, int64_t rows,
              int64_t columns) {
  if (rows > 2 * kRowUnit) return tiles<To, kRows>(f, a, b, depth, rows, columns);
  if (rows > kRowUnit) return tiles<To, 2 * kRowUnit>(f, a, b, depth, rows, columns);
  return tiles<To, kRowUnit>(f, a, b, depth, rows, columns);
}
void tiles_to(const Finish& f, RowsOfA a, const ColumnsOfB& b, int64_t depth, int64_t rows,
              int64_t columns) {
  with_code(f.out.code, [&](auto to) { tiles_of<decltype(to)>(f, a, b, depth, rows, columns); });
}

inline int64_t bytes_of(FloatCode code) { return code == FloatCode::f32 ? 4 : 2; }
// Where C is narrow, sums that are to be added to are kept apart.
inline bool keeps_sums(const ProductPart& p) {
  return p.c_code != FloatCode::f32 && depth_of(p.k) < p.k;
}

// Sums that are kept apart begin with what C holds.
void widen_c(const ProductPart& p, int64_t column, int64_t columns, float* sums, int64_t apart) {
  with_code(p.c_code, [&](auto code) {
    using Code = decltype(code);
    const auto* c = static_cast<const typename Code::Element*>(p.c) + column;
    for (int64_t i = 0; i < p.m; ++i, c += p.c_row, sums += apart)
      for (int64_t j = 0; j < columns; j += kWidth)
        store(sums + j, up_to<Code>(c + j, columns - j));
  });
}

// The same for all products but the last term, so that one after the other packs into memory that
// is in the cache already.
int64_t room_floats(const ProductPart& p) {
  const int64_t columns = least(round_up(p.n, kColumns), most_columns(depth_of(p.k)));
  return kPackedFloatsOfA + kPackedFloats + (keeps_sums(p) ? columns * p.m : 0);
}

void run(const ProductPart& p) {
  const int64_t most_depth = depth_of(p.k),
                at_once = stretch(p.n, most_columns(most_depth), kColumns);
  float *packed_a = p.room, *packed_b = packed_a + kPackedFloatsOfA,
        *sums = keeps_sums(p) ? packed_b + kPackedFloats : nullptr;
  for (int64_t j = 0; j < p.n; j += at_once) {
    const int64_t columns = least(at_once, p.n - j);
    if (sums && p.accumulate) widen_c(p, j, columns, sums, at_once);
    int64_t from = 0;
    do {  // once where k is 0
      const int64_t depth = least(most_depth, p.k - from);
      const bool first = from == 0, last = from + depth == p.k;
      const ColumnsOfB b = read_b(p, from, j, depth, columns, packed_b);
      for (int64_t i = 0; i < p.m; i += kRows) {
        const int64_t rows = least(kRows, p.m - i);
        const Place c{static_cast<unsigned char*>(p.c) + (i * p.c_row + j) * bytes_of(p.c_code),
                      p.c_code, p.c_row};
        const Place earlier = sums ? Place{sums + i * at_once, FloatCode::f32, at_once} : c;
        const Place nothing{nullptr, FloatCode::f32, 0};
        tiles_to({.add = !first || p.accumulate ? earlier : nothing,
                  .bias = last && p.bias != nullptr ? p.bias + j : nullptr,
                  .relu = last && p.relu,
                  .out = last ? c : earlier},
                 read_a(p, i, from, rows, depth, packed_a), b, depth, rows, columns);
      }
      from += depth;
    } while (from < p.k);
  }
}

}  // namespace

const ProductLoops LOCKSTEP_LOOPS_TABLE(Product) = {kRows, kColumns, room_floats, run};

}  // namespace lockstep::cpu
