#include "core/kernels/cpu/attention_loops.h"

#include "core/kernels/cpu/tile_vec.h"

// Blocks of kBlock queries against all the keys they may see, so that of the T × T scores only a
// strip exists at a time (forward), or as many strips as fit the second-level cache (backward).
namespace lockstep::cpu {
namespace {

constexpr float kInfinity = __builtin_inff();
constexpr int64_t kStripFloats = int64_t{1}
                                 << 17;  // of probabilities, and as many of gradients: 1 MB in all

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
// Columns of a strip: whole tiles and whole blocks of keys.
inline int64_t padded(int64_t n) { return round_up(n, kPanel > kBlock ? kPanel : kBlock); }
// Rows of scores that the backward keeps at a time, and a bound on their floats that grows with the
// positions, so that memory for all of them does for the first few.
inline int64_t strip_rows(int64_t positions) {
  if (positions == 0) return kBlock;  // a context of nothing
  const int64_t rows = kStripFloats / padded(positions) / kBlock * kBlock;
  return rows < kBlock ? kBlock : least(rows, round_up(positions, kBlock));
}
inline int64_t strip_floats(int64_t positions) {
  const int64_t one = kBlock * padded(positions);
  return least(round_up(positions, kBlock) * padded(positions),
               one > kStripFloats ? one : kStripFloats);
}

struct Sizes {
  int64_t positions, width;  // padded
  explicit Sizes(const AttentionHead& h) : positions(padded(h.length)), width(padded(h.width)) {}
  Sizes(int64_t p, int64_t w) : positions(padded(p)), width(padded(w)) {}
  int64_t panels() const { return positions * width; }
};

// Rows [begin, begin + kBlock) of x times scale; rows beyond the length are zeros.
inline void pack_block(float* block, int64_t ld, const float* x, int64_t row, int64_t begin,
                       int64_t length, int64_t width, float scale) {
  for (int64_t r = 0; r < kBlock; ++r)
    for (int64_t d = 0; d < width; ++d)
      block[r * ld + d] = begin + r < length ? x[(begin + r) * row + d] * scale : 0.0f;
}
inline void unpack_row(float* to, const float* from, int64_t width, float scale) {
  for (int64_t d = 0; d < width; ++d) to[d] = from[d] * scale;
}
inline void clear_rows(float* to, int64_t row, int64_t begin, int64_t end, int64_t width) {
  for (int64_t i = begin; i < end; ++i)
    for (int64_t d = 0; d < width; ++d) to[i * row + d] = 0.0f;
}

inline float row_max(const float* x, int64_t n) {
  Vec top = set(-kInfinity);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) top = max(load(x + i), top);
  if (i < n) top = max(keep_n(load(x + i), n - i, top), top);  // strips are padded: a whole load
  return reduce_max(top);
}

// x[i] = e^(x[i] - offset) in the first n places, zeros in the others up to `end`; returns the sum.
inline float exp_row(float* x, float offset, int64_t n, int64_t end) {
  Vec sum{};
  const Vec o = set(offset);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Vec e = exp(load(x + i) - o);
    store(x + i, e);
    sum += e;
  }
  for (; i < end; i += kWidth) {
    const Vec e = i < n ? keep_n(exp(load(x + i) - o), n - i, Vec{}) : Vec{};
    store(x + i, e);
    sum += e;
  }
  return reduce_add(sum);
}

int64_t forward_floats(int64_t positions, int64_t width) {
  const Sizes s(positions, width);
  return 2 * s.panels() + kBlock * s.positions + 2 * kBlock * s.width;
}

void forward(const AttentionHead& h) {
  const int64_t length = h.length, width = h.width;
  clear_rows(h.out, h.out_row, length, h.positions, width);
  for (int64_t i = length; i < h.positions; ++i) h.lse[i] = -kInfinity;
  if (length == 0) return;
  const Sizes s(h);
  float *keys = h.work, *values = keys + s.panels(), *scores = values + s.panels(),
        *q = scores + kBlock * s.positions, *o = q + kBlock * s.width;
  pack_transposed(keys, h.k, h.row, width, length);
  pack(values, h.v, h.row, length, width, 1.0f);
  const int64_t columns = round_up(width, kWidth);
  for (int64_t begin = 0; begin < length; begin += kBlock) {
    const int64_t seen = h.causal ? least(begin + kBlock, length) : length;
    const int64_t strip = round_up(seen, kWidth);
    pack_block(q, s.width, h.q, h.row, begin, length, width, h.scale);
    block_product(scores, s.positions, q, s.width, 1, keys, width, width, strip, Store::overwrite);
    float scale[kBlock];
    for (int64_t r = 0; r < kBlock; ++r) {
      float* row = scores + r * s.positions;
      const int64_t n = h.causal ? least(begin + r + 1, length) : length;
      const float top = row_max(row, n), sum = exp_row(row, top, n, strip);
      scale[r] = 1.0f / sum;
      if (begin + r < length) h.lse[begin + r] = top + log(set(sum))[0];
    }
    block_product(o, s.width, scores, s.positions, 1, values, length, seen, columns,
                  Store::overwrite);
    for (int64_t r = 0; r < kBlock && begin + r < length; ++r)
      unpack_row(h.out + (begin + r) * h.out_row, o + r * s.width, width, scale[r]);
  }
}

int64_t backward_floats(int64_t positions, int64_t width) {
  const Sizes s(positions, width);
  return 7 * s.panels() + 2 * strip_floats(positions) + 3 * kBlock * s.width;
}

// With P the probabilities and D_i = Σ_d dout_id out_id (Dao et al. 2022, equation 4):
// dV = Pᵀ dO, dS = P ∘ (dO Vᵀ - D), dQ = scale · dS K, dK = scale · dSᵀ Q.
void backward(const AttentionHead& h) {
  const int64_t length = h.length, width = h.width;
  clear_rows(h.dq, h.row, length, h.positions, width);
  clear_rows(h.dk, h.row, length, h.positions, width);
  clear_rows(h.dv, h.row, length, h.positions, width);
  if (length == 0) return;
  const Sizes s(h);
  const int64_t n_panels = s.panels(), chunk = strip_rows(length),
                columns = round_up(width, kWidth);
  float* at = h.work;
  const auto take = [&](int64_t floats) { return at += floats, at - floats; };
  float *keys_t = take(n_panels), *values_t = take(n_panels), *keys = take(n_panels),
        *queries = take(n_panels), *douts = take(n_panels), *dk = take(n_panels),
        *dv = take(n_panels), *p = take(chunk * s.positions), *ds = take(chunk * s.positions),
        *q = take(kBlock * s.width), *d_out = take(kBlock * s.width), *dq = take(kBlock * s.width);
  pack_transposed(keys_t, h.k, h.row, width, length);
  pack_transposed(values_t, h.v, h.row, width, length);
  pack(keys, h.k, h.row, length, width, 1.0f);
  pack(queries, h.q, h.row, length, width, h.scale);
  pack(douts, h.dout, h.out_row, length, width, 1.0f);

  for (int64_t first = 0; first < length; first += chunk) {
    const int64_t last = least(first + chunk, length);
    for (int64_t begin = first; begin < last; begin += kBlock) {
      const int64_t seen = h.causal ? least(begin + kBlock, length) : length;
      // Whole blocks of keys are read below, so zeros go as far.
      const int64_t strip = round_up(seen, kWidth),
                    zeros = round_up(seen, kWidth > kBlock ? kWidth : kBlock);
      float *strip_p = p + (begin - first) * s.positions,
            *strip_ds = ds + (begin - first) * s.positions;
      pack_block(q, s.width, h.q, h.row, begin, length, width, h.scale);
      pack_block(d_out, s.width, h.dout, h.out_row, begin, length, width, 1.0f);
      block_product(strip_p, s.positions, q, s.width, 1, keys_t, width, width, strip,
                    Store::overwrite);
      block_product(strip_ds, s.positions, d_out, s.width, 1, values_t, width, width, strip,
                    Store::overwrite);
      for (int64_t r = 0; r < kBlock; ++r) {
        float *row_p = strip_p + r * s.positions, *row_ds = strip_ds + r * s.positions;
        const int64_t i = begin + r, n = i >= length ? 0 : h.causal ? i + 1 : length;
        exp_row(row_p, i < length ? h.lse[i] : 0.0f, n, zeros);
        float dot = 0;
        if (i < length) {
          const float *a = h.dout + i * h.out_row, *b = h.out + i * h.out_row;
          Vec dots{};
          int64_t d = 0;
          for (; d + kWidth <= width; d += kWidth) dots = fma(load(a + d), load(b + d), dots);
          if (d < width) dots = fma(load_n(a + d, width - d), load_n(b + d, width - d), dots);
          dot = reduce_add(dots);
        }
        const Vec delta = set(dot);
        for (int64_t j = 0; j < zeros; j += kWidth) {
          const Vec g = load(row_p + j) * (load(row_ds + j) - delta);
          store(row_ds + j, j + kWidth <= n ? g : keep_n(g, n - j, Vec{}));
        }
      }
      block_product(dq, s.width, strip_ds, s.positions, 1, keys, length, seen, columns,
                    Store::overwrite);
      for (int64_t r = 0; r < kBlock && begin + r < length; ++r)
        unpack_row(h.dq + (begin + r) * h.row, dq + r * s.width, width, h.scale);
    }
    // The queries of this chunk, transposed, against their gradients and themselves. A causal block
    // of keys is seen by the queries from its own first position on.
    const Store mode = first == 0 ? Store::overwrite : Store::add;
    const int64_t end = h.causal ? last : length;
    for (int64_t key = 0; key < end; key += kBlock) {
      const int64_t from = h.causal && key > first ? key : first;
      // A key that no query of the first chunks saw starts with the chunk that does.
      const Store how = h.causal && key >= first ? Store::overwrite : mode;
      const float *p_at = p + (from - first) * s.positions + key,
                  *ds_at = ds + (from - first) * s.positions + key;
      block_product(dv + key * s.width, s.width, p_at, 1, s.positions, douts + from * kPanel,
                    length, last - from, columns, how);
      block_product(dk + key * s.width, s.width, ds_at, 1, s.positions, queries + from * kPanel,
                    length, last - from, columns, how);
    }
  }
  for (int64_t i = 0; i < length; ++i) {
    unpack_row(h.dk + i * h.row, dk + i * s.width, width, 1.0f);
    unpack_row(h.dv + i * h.row, dv + i * s.width, width, 1.0f);
  }
}

}  // namespace

const AttentionLoops LOCKSTEP_LOOPS_TABLE(Attention) = {forward_floats, backward_floats, forward,
                                                        backward};

}  // namespace lockstep::cpu
