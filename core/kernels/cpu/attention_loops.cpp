#include "core/kernels/cpu/attention_loops.h"

#include "core/kernels/cpu/tile_vec.h"

// Blocks of kTileRows queries against all the keys they may see, so that of the T × T scores only a
// strip exists at a time (forward), or as many strips as fit the second-level cache (backward).
namespace lockstep::cpu {
namespace {

constexpr float kInfinity = __builtin_inff();
// Of probabilities, and as many of gradients: 1 MB in all.
constexpr int64_t kStripFloats = int64_t{1} << 17;

inline int64_t padded(int64_t n) { return round_up(n, kPanel); }
// From one row of a strip to the next: a line of the cache more than it holds, so that the elements
// of a column do not all compete for the same places in it.
inline int64_t strip_step(int64_t positions) { return padded(positions) + 16; }
// Rows of scores that the backward keeps at a time, and a bound on their floats that grows with the
// positions, so that memory for all of them does for the first few.
inline int64_t strip_rows(int64_t positions) {
  const int64_t rows = kStripFloats / strip_step(positions) / kTileRows * kTileRows;
  return rows < kTileRows ? kTileRows : least(rows, round_up(positions, kTileRows));
}
inline int64_t strip_floats(int64_t positions) {
  const int64_t one = kTileRows * strip_step(positions);
  return least(round_up(positions, kTileRows) * strip_step(positions),
               one > kStripFloats ? one : kStripFloats);
}
inline int64_t panels_floats(int64_t positions, int64_t width) {
  return padded(positions) * padded(width);
}
inline int64_t copy_floats(int64_t width) { return kTileRows * padded(width); }

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};
// f with the height of the tile that has room for so many rows.
template <class F>
inline void with_tall(int64_t rows, F f) {
  if (rows > 2 * kRowUnit) return f(Constant<kTileRows>{});
  if (rows > kRowUnit) return f(Constant<2 * kRowUnit>{});
  return f(Constant<kRowUnit>{});
}

// finish(r, j, sums of row r in the columns from j on) for A[kTall, k] · B[k, to), the columns from
// `from` on (a multiple of kPanel); `depth` are the rows that a whole panel of B has.
template <int kTall, class Finish>
[[gnu::always_inline]] inline void product(RowsOfA a, const float* panels, int64_t depth, int64_t k,
                                           int64_t from, int64_t to, Finish finish) {
  const auto one = [&](auto vecs, int64_t j) __attribute__((always_inline)) {
    constexpr int kVecs = decltype(vecs)::value;
    Sums<kTall, kVecs> sums;
    multiply<kTall, kVecs>(sums, a, panels + j * depth, kPanel, k);
#pragma GCC unroll 12
    for (int r = 0; r < kTall; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) finish(r, j + v * kWidth, sums[r][v]);
  };
  int64_t j = from;
  for (; j + kWidth < to; j += kPanel) one(Constant<kTileVecs>{}, j);
  if (j < to) one(Constant<1>{}, j);
}

// A row that may end within a vector.
inline void store_up_to(float* to, Vec v, int64_t n) {
  if (n >= kWidth)
    store(to, v);
  else if (n > 0)
    store_n(to, v, n);
}
inline void clear_rows(float* to, int64_t row, int64_t begin, int64_t end, int64_t width) {
  for (int64_t i = begin; i < end; ++i)
    for (int64_t d = 0; d < width; ++d) to[i * row + d] = 0.0f;
}

// Rows of a tile, folded to one number each.
constexpr int kRowGroups = (kTileRows + kWidth - 1) / kWidth;
struct RowNumbers {
  Vec groups[kRowGroups];
  void store_to(float* to) const {
    for (int g = 0; g < kRowGroups; ++g) store(to + g * kWidth, groups[g]);
  }
};
template <int kTall, class Fold>
[[gnu::always_inline]] inline RowNumbers fold_rows(const Vec (&rows)[kTall], Fold fold) {
  RowNumbers numbers;
#pragma GCC unroll 2
  for (int g = 0; g < kRowGroups; ++g) {
    Vec v[kWidth];
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) v[i] = g * kWidth + i < kTall ? rows[g * kWidth + i] : rows[0];
    numbers.groups[g] = fold_lines(v, fold);
  }
  return numbers;
}
struct RowFloats {
  alignas(64) float row[kRowGroups * kWidth];
};

// A block of queries and the keys that it sees.
struct Block {
  int64_t begin, rows;  // queries
  int64_t seen;         // keys that any of them sees
  int64_t whole;        // keys that all of them see, in whole panels
  int64_t strip;        // seen, in whole vectors
  int64_t first, more;  // keys that the first query sees, and by how many each next one sees more
  Block(const AttentionHead& h, int64_t at)
      : begin(at),
        rows(least(kTileRows, h.length - at)),
        seen(h.causal ? at + rows : h.length),
        whole((h.causal ? at + 1 : h.length) / kPanel * kPanel),
        strip(round_up(seen, kWidth)),
        first(h.causal ? at + 1 : h.length),
        more(h.causal ? 1 : 0) {}
  // Of the keys from j on, those that query r sees; kWidth or more: a whole vector.
  int64_t seen_by(int64_t r, int64_t j) const { return first + r * more - j; }
};
// Its rows of a matrix, as they lie or, where fewer than a tile has are left, copied with zeros
// after them.
template <int kTall>
inline RowsOfA rows_of(const float* x, int64_t row, const Block& block, int64_t width,
                       float* copy) {
  if (block.rows == kTall) return {x + block.begin * row, row, 1};
  for (int64_t r = 0; r < kTall; ++r)
    for (int64_t d = 0; d < width; ++d)
      copy[r * padded(width) + d] = r < block.rows ? x[(block.begin + r) * row + d] : 0.0f;
  return {copy, padded(width), 1};
}

int64_t forward_floats(int64_t positions, int64_t width) {
  return 2 * panels_floats(positions, width) + kTileRows * strip_step(positions) +
         copy_floats(width);
}

struct ForwardRoom {
  float *keys, *values, *scores, *copy;
};

template <int kTall>
void forward_block(const AttentionHead& h, const ForwardRoom& room, const Block& block) {
  const int64_t width = h.width, step = strip_step(h.length);
  float* const scores = room.scores;
  const RowsOfA q = rows_of<kTall>(h.q, h.row, block, width, room.copy);
  const Vec scale = set(h.scale);
  Vec top[kTall];
#pragma GCC unroll 12
  for (int r = 0; r < kTall; ++r) top[r] = set(-kInfinity);
  product<kTall>(q, room.keys, width, width, 0, block.whole, [&](int r, int64_t j, Vec score) {
    store(scores + r * step + j, score);
    top[r] = max(score, top[r]);
  });
  product<kTall>(q, room.keys, width, width, block.whole, block.strip,
                 [&](int r, int64_t j, Vec score) {
                   store(scores + r * step + j, score);
                   top[r] = max(keep_n(score, block.seen_by(r, j), top[r]), top[r]);
                 });

  RowNumbers offset = fold_rows<kTall>(top, [](Vec a, Vec b) { return max(a, b); });
  for (Vec& o : offset.groups) o *= scale;
  RowFloats offsets, shares, lse;
  offset.store_to(offsets.row);
  Vec sum[kTall] = {};
  int64_t j = 0;
  for (; j < block.whole; j += kWidth)
#pragma GCC unroll 12
    for (int r = 0; r < kTall; ++r) {
      float* at = scores + r * step + j;
      const Vec e = quick_exp(fma(load(at), scale, set(-offsets.row[r])));
      store(at, e);
      sum[r] += e;
    }
  for (; j < block.strip; j += kWidth)
#pragma GCC unroll 12
    for (int r = 0; r < kTall; ++r) {
      float* at = scores + r * step + j;
      const Vec e =
          keep_n(quick_exp(fma(load(at), scale, set(-offsets.row[r]))), block.seen_by(r, j), Vec{});
      store(at, e);
      sum[r] += e;
    }
  const RowNumbers total = fold_rows<kTall>(sum, [](Vec a, Vec b) { return a + b; });
  for (int g = 0; g < kRowGroups; ++g) {
    store(shares.row + g * kWidth, set(1.0f) / total.groups[g]);
    store(lse.row + g * kWidth, offset.groups[g] + log(total.groups[g]));
  }
  for (int64_t r = 0; r < block.rows; ++r) h.lse[block.begin + r] = lse.row[r];
  product<kTall>(
      {scores, step, 1}, room.values, h.length, block.seen, 0, width, [&](int r, int64_t d, Vec v) {
        if (r < block.rows)
          store_up_to(h.out + (block.begin + r) * h.out_row + d, v * set(shares.row[r]), width - d);
      });
}

void forward(const AttentionHead& h) {
  const int64_t length = h.length, width = h.width, panels = panels_floats(length, width);
  clear_rows(h.out, h.out_row, length, h.positions, width);
  for (int64_t i = length; i < h.positions; ++i) h.lse[i] = -kInfinity;
  if (length == 0) return;
  const ForwardRoom room{h.work, h.work + panels, h.work + 2 * panels,
                         h.work + 2 * panels + kTileRows * strip_step(length)};
  pack_transposed(room.keys, h.k, h.row, width, length);
  pack(room.values, h.v, h.row, length, width);
  for (int64_t begin = 0; begin < length; begin += kTileRows) {
    const Block block(h, begin);
    with_tall(block.rows, [&](auto tall) { forward_block<decltype(tall)::value>(h, room, block); });
  }
}

int64_t backward_floats(int64_t positions, int64_t width) {
  return 5 * panels_floats(positions, width) + 2 * strip_floats(positions) + 2 * copy_floats(width);
}

struct BackwardRoom {
  float *keys_t, *values_t, *keys, *queries, *douts, *p, *ds, *copy_q, *copy_d;
};

// D of the paper, for the rows of a block.
template <int kTall>
inline RowNumbers dots(const AttentionHead& h, const Block& block) {
  Vec sum[kTall];
#pragma GCC unroll 12
  for (int r = 0; r < kTall; ++r) {
    const int64_t at = (block.begin + (r < block.rows ? r : 0)) * h.out_row;
    const float *a = h.dout + at, *b = h.out + at;
    Vec s{};
    int64_t d = 0;
    for (; d + kWidth <= h.width; d += kWidth) s = fma(load(a + d), load(b + d), s);
    if (d < h.width) s = fma(load_n(a + d, h.width - d), load_n(b + d, h.width - d), s);
    sum[r] = s;
  }
  return fold_rows<kTall>(sum, [](Vec a, Vec b) { return a + b; });
}

// The strips of a block of queries, probabilities at p and dS at ds, and its dQ.
template <int kTall>
void differentiate_block(const AttentionHead& h, const BackwardRoom& room, const Block& block,
                         float* p, float* ds) {
  const int64_t width = h.width, step = strip_step(h.length);
  const RowsOfA q = rows_of<kTall>(h.q, h.row, block, width, room.copy_q),
                d = rows_of<kTall>(h.dout, h.out_row, block, width, room.copy_d);
  RowFloats lse = {}, delta;
  for (int64_t r = 0; r < block.rows; ++r) lse.row[r] = h.lse[block.begin + r];
  dots<kTall>(h, block).store_to(delta.row);
  product<kTall>(q, room.keys_t, width, width, 0, block.strip,
                 [&](int r, int64_t j, Vec score) { store(p + r * step + j, score); });
  const Vec scale = set(h.scale);
  const auto probability = [&](int r, int64_t j) {
    return quick_exp(fma(load(p + r * step + j), scale, set(-lse.row[r])));
  };
  product<kTall>(d, room.values_t, width, width, 0, block.whole, [&](int r, int64_t j, Vec dp) {
    const Vec e = probability(r, j);
    store(p + r * step + j, e);
    store(ds + r * step + j, e * (dp - set(delta.row[r])));
  });
  product<kTall>(d, room.values_t, width, width, block.whole, block.strip,
                 [&](int r, int64_t j, Vec dp) {
                   const Vec e = probability(r, j);
                   const int64_t n = block.seen_by(r, j);
                   store(p + r * step + j, keep_n(e, n, Vec{}));
                   store(ds + r * step + j, keep_n(e * (dp - set(delta.row[r])), n, Vec{}));
                 });
  product<kTall>({ds, step, 1}, room.keys, h.length, block.seen, 0, width,
                 [&](int r, int64_t i, Vec v) {
                   if (r < block.rows)
                     store_up_to(h.dq + (block.begin + r) * h.row + i, v * scale, width - i);
                 });
}

enum class Store { overwrite, add };

// rows of `to`, `row` apart, = or += scale · Aᵀ B, A the first columns of k rows of a strip.
template <int kTall>
void add_transposed(float* to, int64_t row, int64_t rows, int64_t width, const float* strip,
                    int64_t step, int64_t k, const float* panels, int64_t depth, float scale,
                    Store mode) {
  product<kTall>({strip, 1, step}, panels, depth, k, 0, width, [&](int r, int64_t i, Vec v) {
    if (r >= rows) return;
    float* at = to + r * row + i;
    v *= set(scale);
    if (mode == Store::add) v += load_up_to(at, width - i);
    store_up_to(at, v, width - i);
  });
}

// With P the probabilities and D_i = Σ_d dout_id out_id (Dao et al. 2022, equation 4):
// dV = Pᵀ dO, dS = P ∘ (dO Vᵀ - D), dQ = scale · dS K, dK = scale · dSᵀ Q.
void backward(const AttentionHead& h) {
  const int64_t length = h.length, width = h.width;
  clear_rows(h.dq, h.row, length, h.positions, width);
  clear_rows(h.dk, h.row, length, h.positions, width);
  clear_rows(h.dv, h.row, length, h.positions, width);
  if (length == 0) return;
  const int64_t panels = panels_floats(length, width), chunk = strip_rows(length),
                step = strip_step(length);
  float* at = h.work;
  const auto take = [&](int64_t floats) { return at += floats, at - floats; };
  const BackwardRoom room{take(panels),
                          take(panels),
                          take(panels),
                          take(panels),
                          take(panels),
                          take(chunk * step),
                          take(chunk * step),
                          take(copy_floats(width)),
                          take(copy_floats(width))};
  pack_transposed(room.keys_t, h.k, h.row, width, length);
  pack_transposed(room.values_t, h.v, h.row, width, length);
  pack(room.keys, h.k, h.row, length, width);
  pack(room.queries, h.q, h.row, length, width);
  pack(room.douts, h.dout, h.out_row, length, width);

  for (int64_t first = 0; first < length; first += chunk) {
    const int64_t last = least(first + chunk, length);
    for (int64_t begin = first; begin < last; begin += kTileRows) {
      const Block block(h, begin);
      const int64_t strip = (begin - first) * step;
      with_tall(block.rows, [&](auto tall) {
        differentiate_block<decltype(tall)::value>(h, room, block, room.p + strip, room.ds + strip);
      });
    }
    // This chunk's probabilities, transposed, against the gradients, and theirs against the
    // queries. A causal block of keys is seen by the queries from its own first position on, so one
    // at or beyond the chunk's first position has had nothing added to it yet.
    for (int64_t key = 0; key < (h.causal ? last : length); key += kTileRows) {
      const int64_t from = h.causal && key > first ? key : first, n = last - from,
                    rows = least(kTileRows, length - key);
      const Store mode = first == 0 || (h.causal && key >= first) ? Store::overwrite : Store::add;
      const int64_t corner = (from - first) * step + key;
      with_tall(rows, [&](auto tall) {
        constexpr int kTall = decltype(tall)::value;
        add_transposed<kTall>(h.dv + key * h.row, h.row, rows, width, room.p + corner, step, n,
                              room.douts + from * kPanel, length, 1.0f, mode);
        add_transposed<kTall>(h.dk + key * h.row, h.row, rows, width, room.ds + corner, step, n,
                              room.queries + from * kPanel, length, h.scale, mode);
      });
    }
  }
}

}  // namespace

const AttentionLoops LOCKSTEP_LOOPS_TABLE(Attention) = {forward_floats, backward_floats, forward,
                                                        backward};

}  // namespace lockstep::cpu
