#include "core/kernels/cpu/product_loops.h"

#include "core/kernels/cpu/product_pack.h"

// Note [A product from registers]
// A register tile of C, kRows x kColumns, is summed over a stretch of k, then added to what earlier
// stretches gave. B's columns are read from a packed copy of them, which serves all rows and stays
// in the second-level cache; A's rows, of one tile at a time, from where they lie or, where they
// are stored as columns or are not f32, from a copy that stays in the first. Packing widens f16 and
// bf16 on the way, so that they cost next to nothing more than f32, and only half the reading.
// (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008.)
namespace lockstep::cpu {
namespace {

// The columns of B under a row of tiles: element (i, j) of panel p at
// data[i * kColumns + j + p * panel].
struct ColumnsOfB {
  float* data;
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
      pack_across<Code, kPanelsOfB>(room, x, b.row, columns, depth);
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
      pack_across<Code, kPanelsOfA>(room, static_cast<const typename Code::Element*>(a.data) + at,
                                    a.column, least(kBlockRows, p.m - row), depth);
    });

  return {room + in_block / kRows * kPanelsOfA.step(depth), 1, kLine};
}

// What is packed beside the multiplications of the first tiles: see the note below.
struct Weft {
  const ProductOperand* from;  // whose code both have; null: nothing to pack
  const void* b;               // B's columns under the first tile, or null: they are packed already
  int64_t b_row;
  const void* a;  // the next tile's rows of A, or null
  int64_t a_column, a_rows;
  float* packed_a;
};

// Note [Packing while multiplying]
// Where both operands have to be packed from where neighbours are of one line, as for a gradient of
// weights, that takes a tenth of the time, nearly all of it waiting for the cache to take what is
// stored. So all but the first of it is done between the multiplications, which hide it: the first
// row of tiles packs the columns of B that it reads, and the first tile of each row packs A for the
// next row. Operands of f32, twice as many bytes to wait for, gain nothing by it.
bool can_weave(const ProductPart& p, int64_t columns) {
  return p.a.code != FloatCode::f32 && p.b.code == p.a.code && p.a.column != 1 && p.b.column == 1 &&
         p.m > kRows && columns >= kColumns;
}
const void* element(const ProductOperand& x, int64_t row, int64_t column) {
  const int64_t at = row * x.row + column * x.column;
  return static_cast<const unsigned char*>(x.data) + at * bytes_of(x.code);
}
// The columns that do not fill a panel are packed beforehand.
ColumnsOfB read_rest_of_b(const ProductPart& p, int64_t from, int64_t column, int64_t depth,
                          int64_t columns, float* room) {
  const int64_t whole = columns / kColumns;
  if (whole * kColumns < columns)
    read_b(p, from, column + whole * kColumns, depth, columns - whole * kColumns,
           room + whole * kPanelsOfB.step(depth));
  return {room, kPanelsOfB.step(depth)};
}
// Two panels of A take turns.
float* panel_of_a(int64_t row, int64_t depth, float* room) {
  return room + row / kRows % 2 * kPanelsOfA.step(depth);
}
RowsOfA woven_a(const ProductPart& p, int64_t row, int64_t from, int64_t depth, float* room) {
  float* panel = panel_of_a(row, depth, room);
  if (row == 0)
    with_code(p.a.code, [&](auto code) {
      using Code = decltype(code);
      pack_across<Code, kPanelsOfA>(
          panel, static_cast<const typename Code::Element*>(element(p.a, 0, from)), p.a.column,
          kRows, depth);
    });
  return {panel, 1, kLine};
}
Weft weft(const ProductPart& p, int64_t row, int64_t from, int64_t column, int64_t depth,
          float* room) {
  const int64_t next = row + kRows;
  return {.from = &p.b,
          .b = row == 0 ? element(p.b, from, column) : nullptr,
          .b_row = p.b.row,
          .a = next < p.m ? element(p.a, next, from) : nullptr,
          .a_column = p.a.column,
          .a_rows = p.m - next,
          .packed_a = panel_of_a(next, depth, room)};
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

// finish_row() of a whole tile; what there is to do is asked once.
template <class To, int kTall, int kVecs>
[[gnu::always_inline]] inline void finish_tile(const Finish& f, int64_t column,
                                               Sums<kTall, kVecs>& sums) {
  const auto each = [&](auto change) __attribute__((always_inline)) {
#pragma GCC unroll 12
    for (int r = 0; r < kTall; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) change(sums[r][v], r, v);
  };
  if (f.add.data != nullptr) {
    if (f.add.code == FloatCode::f32) {
      const float* add = static_cast<const float*>(f.add.data) + column;
      each([&](Vec& sum, int r, int v) { sum += load(add + r * f.add.row + v * kWidth); });
    } else {
      const auto* add = static_cast<const typename To::Element*>(f.add.data) + column;
      each([&](Vec& sum, int r, int v) { sum += To::widen(add + r * f.add.row + v * kWidth); });
    }
  }
  if (f.bias != nullptr) {
    Vec bias[kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) bias[v] = load(f.bias + column + v * kWidth);
    each([&](Vec& sum, int, int v) { sum += bias[v]; });
  }
  if (f.relu) each([](Vec& sum, int, int) { sum = max(Vec{}, sum); });  // NaN stays
  auto* out = static_cast<typename To::Element*>(f.out.data) + column;
#pragma GCC unroll 12
  for (int r = 0; r < kTall; ++r)
    if constexpr (kVecs == 2)
      To::narrow(out + r * f.out.row, sums[r][0], sums[r][1]);
    else
      To::narrow(out + r * f.out.row, sums[r][0]);
}

// One tile of C: multiply(sums) gives its sums.
template <class To, int kTall, int kVecs, class Multiply>
inline void tile(const Finish& f, int64_t column, int64_t rows, int64_t columns,
                 Multiply multiply) {
  constexpr int64_t kWide = kVecs * kWidth;
  Sums<kTall, kVecs> sums;
#pragma GCC unroll 12
  for (int r = 0; r < kTall; ++r) {  // C arrives while its sums are made
    auto* c = static_cast<typename To::Element*>(f.out.data) + r * f.out.row + column;
    __builtin_prefetch(c, 1);
    if (kVecs > 1 && sizeof(*c) == 4) __builtin_prefetch(c + kWidth, 1);
  }
  multiply(sums);
  if (rows == kTall && columns == kWide) return finish_tile<To, kTall, kVecs>(f, column, sums);
  alignas(64) float kept[kTall * kWide];
#pragma GCC unroll 12
  for (int r = 0; r < kTall; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) store(kept + r * kWide + v * kWidth, sums[r][v]);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < columns; j += kWidth)
      finish_row<To>(f, r, column + j, load(kept + r * kWide + j), columns - j);
}

// sums = A · B of a tile, A packed, and what the weft asks for.
template <class Code>
[[gnu::always_inline]] inline void weave(Sums<kRows>& sums, const float* a, float* b,
                                         int64_t column, const Weft& weft, int64_t depth) {
  using Element = typename Code::Element;
  constexpr int64_t kAhead = 48;
  const auto* from_b = static_cast<const Element*>(weft.b);
  const auto* from_a = column == 0 ? static_cast<const Element*>(weft.a) : nullptr;
  if (from_b != nullptr) from_b += column;
  float* packed_a = weft.packed_a;
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kTileVecs; ++v) sums[r][v] = Vec{};
  for (int64_t i = 0; i < depth; ++i, a += kLine, b += kColumns) {
    Vec line[kTileVecs];
    if (from_b != nullptr) {
      __builtin_prefetch(from_b + kAhead * weft.b_row + kColumns - 1);
#pragma GCC unroll 2
      for (int v = 0; v < kTileVecs; ++v) {
        __builtin_prefetch(b + 8 * kColumns + v * kWidth, 1);
        store(b + v * kWidth, line[v] = Code::widen(from_b + v * kWidth));
      }
      from_b += weft.b_row;
    } else {
#pragma GCC unroll 2
      for (int v = 0; v < kTileVecs; ++v) line[v] = load(b + v * kWidth);
    }
    if (from_a != nullptr) {
      __builtin_prefetch(from_a + kAhead * weft.a_column + kRows - 1);
#pragma GCC unroll 2
      for (int c = 0; c < kLine; c += kWidth)
        __builtin_prefetch(packed_a + 8 * kLine + c, 1),
            store(packed_a + c, up_to<Code>(from_a + c, weft.a_rows - c));
      from_a += weft.a_column, packed_a += kLine;
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const Vec x = set(a[r]);
#pragma GCC unroll 2
      for (int v = 0; v < kTileVecs; ++v) sums[r][v] = fma(x, line[v], sums[r][v]);
    }
  }
}

// One row of tiles. The last one is as narrow as a vector where that will do.
template <class To, int kTall>
void tiles(const Finish& f, RowsOfA a, const ColumnsOfB& b, int64_t depth, int64_t rows,
           int64_t columns, const Weft& weft) {
  static_assert(kTileVecs == 2);
  const auto panel = [&](int64_t column) { return b.data + column / kColumns * b.panel; };
  int64_t j = 0;
  if constexpr (kTall == kRows)
    if (weft.from != nullptr)
      for (; j + kColumns <= columns && (weft.b != nullptr || j == 0); j += kColumns)
        with_code(weft.from->code, [&](auto code) {
          tile<To, kTall, 2>(f, j, rows, kColumns, [&](Sums<kTall>& sums) {
            weave<decltype(code)>(sums, a.data, panel(j), j, weft, depth);
          });
        });
  for (; columns - j > kWidth; j += kColumns)
    tile<To, kTall, 2>(f, j, rows, least(kColumns, columns - j), [&](Sums<kTall, 2>& sums) {
      multiply<kTall, 2>(sums, a, panel(j), kColumns, depth);
    });
  if (j < columns)
    tile<To, kTall, 1>(f, j, rows, columns - j, [&](Sums<kTall, 1>& sums) {
      multiply<kTall, 1>(sums, a, panel(j), kColumns, depth);
    });
}
template <class To>
void tiles_of(const Finish& f, RowsOfA a, const ColumnsOfB& b, int64_t depth, int64_t rows,
              int64_t columns, const Weft& weft) {
  if (rows > 2 * kRowUnit) return tiles<To, kRows>(f, a, b, depth, rows, columns, weft);
  if (rows > kRowUnit) return tiles<To, 2 * kRowUnit>(f, a, b, depth, rows, columns, weft);
  return tiles<To, kRowUnit>(f, a, b, depth, rows, columns, weft);
}
void tiles_to(const Finish& f, RowsOfA a, const ColumnsOfB& b, int64_t depth, int64_t rows,
              int64_t columns, const Weft& weft) {
  with_code(f.out.code,
            [&](auto to) { tiles_of<decltype(to)>(f, a, b, depth, rows, columns, weft); });
}

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
      const bool woven = can_weave(p, columns);
      const ColumnsOfB b = woven ? read_rest_of_b(p, from, j, depth, columns, packed_b)
                                 : read_b(p, from, j, depth, columns, packed_b);
      for (int64_t i = 0; i < p.m; i += kRows) {
        const int64_t rows = least(kRows, p.m - i);
        const RowsOfA a = woven ? woven_a(p, i, from, depth, packed_a)
                                : read_a(p, i, from, rows, depth, packed_a);
        const Place c{static_cast<unsigned char*>(p.c) + (i * p.c_row + j) * bytes_of(p.c_code),
                      p.c_code, p.c_row};
        const Place earlier = sums ? Place{sums + i * at_once, FloatCode::f32, at_once} : c;
        const Place nothing{nullptr, FloatCode::f32, 0};
        tiles_to({.add = !first || p.accumulate ? earlier : nothing,
                  .bias = last && p.bias != nullptr ? p.bias + j : nullptr,
                  .relu = last && p.relu,
                  .out = last ? c : earlier},
                 a, b, depth, rows, columns, woven ? weft(p, i, from, j, depth, packed_a) : Weft{});
      }
      from += depth;
    } while (from < p.k);
  }
}

}  // namespace

const ProductLoops LOCKSTEP_LOOPS_TABLE(Product) = {kRowUnit, kColumns, room_floats, run};

}  // namespace lockstep::cpu
