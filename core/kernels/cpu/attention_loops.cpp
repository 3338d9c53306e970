#include "core/kernels/cpu/attention_loops.h"

#include "core/kernels/cpu/tile_vec.h"

// Blocks of kBlock queries against all the keys they may see, so that of the T × T scores only a
// strip exists at a time (forward), or as many strips as fit the second-level cache (backward).
namespace lockstep::cpu {
namespace {

constexpr float kInfinity = __builtin_inff();
// Of probabilities, and as many of gradients: 1 MB in all.
constexpr int64_t kStripFloats = int64_t{1} << 17;

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
// Columns of a strip: whole panels and whole blocks of keys.
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
  Sizes(int64_t p, int64_t w) : positions(padded(p)), width(padded(w)) {}
  int64_t panels() const { return positions * width; }
};

// to[0, width) = scale · from, a row that may end within a vector.
inline void scale_row(float* to, const float* from, int64_t width, float scale) {
  const Vec s = set(scale);
  int64_t d = 0;
  for (; d + kWidth <= width; d += kWidth) store(to + d, load(from + d) * s);
  if (d < width) store_n(to + d, load_n(from + d, width - d) * s, width - d);
}
inline void clear_rows(float* to, int64_t row, int64_t begin, int64_t end, int64_t width) {
  for (int64_t i = begin; i < end; ++i)
    for (int64_t d = 0; d < width; ++d) to[i * row + d] = 0.0f;
}
inline float dot(const float* a, const float* b, int64_t width) {
  Vec sum{};
  int64_t d = 0;
  for (; d + kWidth <= width; d += kWidth) sum = fma(load(a + d), load(b + d), sum);
  if (d < width) sum = fma(load_n(a + d, width - d), load_n(b + d, width - d), sum);
  return reduce_add(sum);
}

// kBlock rows of a matrix, as they lie or, where fewer are left, copied with zeros after them.
struct Rows {
  const float* data;
  int64_t row;
};
inline Rows block_of(const float* x, int64_t row, int64_t begin, int64_t length, int64_t width,
                     float* copy) {
  if (begin + kBlock <= length) return {x + begin * row, row};
  for (int64_t r = 0; r < kBlock; ++r)
    for (int64_t d = 0; d < width; ++d)
      copy[r * width + d] = begin + r < length ? x[(begin + r) * row + d] : 0.0f;
  return {copy, width};
}

inline float row_max(const float* x, int64_t n) {
  Vec top = set(-kInfinity);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) top = max(load(x + i), top);
  if (i < n) top = max(keep_n(load(x + i), n - i, top), top);  // strips are padded: a whole load
  return reduce_max(top);
}

// x[i] = e^(scale · x[i] - offset) in the first n places, zeros in the others up to `end`; the sum.
inline float exp_row(float* x, float scale, float offset, int64_t n, int64_t end) {
  Vec sum{};
  const Vec s = set(scale), o = set(-offset);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Vec e = exp(fma(load(x + i), s, o));
    store(x + i, e);
    sum += e;
  }
  if (i < n) {
    const Vec e = keep_n(exp(fma(load(x + i), s, o)), n - i, Vec{});
    store(x + i, e);
    sum += e;
    i += kWidth;
  }
  for (; i < end; i += kWidth) store(x + i, Vec{});
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
  const Sizes s(length, width);
  float *keys = h.work, *values = keys + s.panels(), *scores = values + s.panels(),
        *copy = scores + kBlock * s.positions, *o = copy + kBlock * s.width;
  pack_transposed(keys, h.k, h.row, width, length);
  pack(values, h.v, h.row, length, width);
  const int64_t columns = round_up(width, kWidth);
  for (int64_t begin = 0; begin < length; begin += kBlock) {
    const int64_t seen = h.causal ? least(begin + kBlock, length) : length;
    const int64_t strip = round_up(seen, kWidth), rows = least(kBlock, length - begin);
    const Rows q = block_of(h.q, h.row, begin, length, width, copy);
    block_product(scores, s.positions, q.data, q.row, 1, keys, width, width, strip,
                  Store::overwrite);
    float offset[kBlock], sum[kPanel] = {};
    for (int64_t r = 0; r < kBlock; ++r) {
      float* row = scores + r * s.positions;
      const int64_t n = h.causal ? least(begin + r + 1, length) : length;
      offset[r] = h.scale * row_max(row, n);
      sum[r] = exp_row(row, h.scale, offset[r], n, strip);
    }
    block_product(o, s.width, scores, s.positions, 1, values, length, seen, columns,
                  Store::overwrite);
    float log_sum[kPanel];
    for (int i = 0; i < kBlock; i += kWidth) store(log_sum + i, log(load(sum + i)));
    for (int64_t r = 0; r < rows; ++r) {
      scale_row(h.out + (begin + r) * h.out_row, o + r * s.width, width, 1.0f / sum[r]);
      h.lse[begin + r] = offset[r] + log_sum[r];
    }
  }
}

int64_t backward_floats(int64_t positions, int64_t width) {
  const Sizes s(positions, width);
  return 7 * s.panels() + 2 * strip_floats(positions) + 3 * kBlock * s.width;
}

// p[j] = e^(scale · p[j] - lse) and ds[j] = p[j] · (ds[j] - delta) in the first n places, zeros in
// the others up to `end`.
inline void differentiate_row(float* p, float* ds, float scale, float lse, float delta, int64_t n,
                              int64_t end) {
  const Vec s = set(scale), o = set(-lse), d = set(delta);
  int64_t j = 0;
  for (; j + kWidth <= n; j += kWidth) {
    const Vec e = exp(fma(load(p + j), s, o));
    store(p + j, e);
    store(ds + j, e * (load(ds + j) - d));
  }
  if (j < n) {
    const Vec e = exp(fma(load(p + j), s, o));
    store(p + j, keep_n(e, n - j, Vec{}));
    store(ds + j, keep_n(e * (load(ds + j) - d), n - j, Vec{}));
    j += kWidth;
  }
  for (; j < end; j += kWidth) {
    store(p + j, Vec{});
    store(ds + j, Vec{});
  }
}

// With P the probabilities and D_i = Σ_d dout_id out_id (Dao et al. 2022, equation 4):
// dV = Pᵀ dO, dS = P ∘ (dO Vᵀ - D), dQ = scale · dS K, dK = scale · dSᵀ Q.
void backward(const AttentionHead& h) {
  const int64_t length = h.length, width = h.width;
  clear_rows(h.dq, h.row, length, h.positions, width);
  clear_rows(h.dk, h.row, length, h.positions, width);
  clear_rows(h.dv, h.row, length, h.positions, width);
  if (length == 0) return;
  const Sizes s(length, width);
  const int64_t panels = s.panels(), chunk = strip_rows(length), columns = round_up(width, kWidth);
  float* at = h.work;
  const auto take = [&](int64_t floats) { return at += floats, at - floats; };
  float *keys_t = take(panels), *values_t = take(panels), *keys = take(panels),
        *queries = take(panels), *douts = take(panels), *dk = take(panels), *dv = take(panels),
        *p = take(chunk * s.positions), *ds = take(chunk * s.positions),
        *copy_q = take(kBlock * s.width), *copy_d = take(kBlock * s.width),
        *dq = take(kBlock * s.width);
  pack_transposed(keys_t, h.k, h.row, width, length);
  pack_transposed(values_t, h.v, h.row, width, length);
  pack(keys, h.k, h.row, length, width);
  pack(queries, h.q, h.row, length, width);
  pack(douts, h.dout, h.out_row, length, width);

  for (int64_t first = 0; first < length; first += chunk) {
    const int64_t last = least(first + chunk, length);
    for (int64_t begin = first; begin < last; begin += kBlock) {
      const int64_t seen = h.causal ? least(begin + kBlock, length) : length,
                    rows = least(kBlock, length - begin);
      // Whole blocks of keys are read below, so zeros go as far.
      const int64_t strip = round_up(seen, kWidth),
                    zeros = round_up(seen, kWidth > kBlock ? kWidth : kBlock);
      float *strip_p = p + (begin - first) * s.positions,
            *strip_ds = ds + (begin - first) * s.positions;
      const Rows q = block_of(h.q, h.row, begin, length, width, copy_q),
                 d = block_of(h.dout, h.out_row, begin, length, width, copy_d);
      block_product(strip_p, s.positions, q.data, q.row, 1, keys_t, width, width, strip,
                    Store::overwrite);
      block_product(strip_ds, s.positions, d.data, d.row, 1, values_t, width, width, strip,
                    Store::overwrite);
      for (int64_t r = 0; r < kBlock; ++r) {
        const int64_t i = begin + r, n = r >= rows ? 0 : h.causal ? i + 1 : length;
        const float delta =
            r < rows ? dot(h.dout + i * h.out_row, h.out + i * h.out_row, width) : 0.0f;
        differentiate_row(strip_p + r * s.positions, strip_ds + r * s.positions, h.scale,
                          r < rows ? h.lse[i] : 0.0f, delta, n, zeros);
      }
      block_product(dq, s.width, strip_ds, s.positions, 1, keys, length, seen, columns,
                    Store::overwrite);
      for (int64_t r = 0; r < rows; ++r)
        scale_row(h.dq + (begin + r) * h.row, dq + r * s.width, width, h.scale);
    }
    // This chunk's probabilities, transposed, against the gradients, and theirs against the
    // queries. A causal block of keys is seen by the queries from its own first position on, so one
    // at or beyond the chunk's first position has had nothing added to it yet.
    for (int64_t key = 0; key < (h.causal ? last : length); key += kBlock) {
      const int64_t from = h.causal && key > first ? key : first, n = last - from;
      const Store mode = first == 0 || (h.causal && key >= first) ? Store::overwrite : Store::add;
      const int64_t corner = (from - first) * s.positions + key;
      block_product(dv + key * s.width, s.width, p + corner, 1, s.positions, douts + from * kPanel,
                    length, n, columns, mode);
      block_product(dk + key * s.width, s.width, ds + corner, 1, s.positions,
                    queries + from * kPanel, length, n, columns, mode);
    }
  }
  for (int64_t i = 0; i < length; ++i) {
    scale_row(h.dk + i * h.row, dk + i * s.width, width, h.scale);
    scale_row(h.dv + i * h.row, dv + i * s.width, width, 1.0f);
  }
}

}  // namespace

const AttentionLoops LOCKSTEP_LOOPS_TABLE(Attention) = {forward_floats, backward_floats, forward,
                                                        backward};

}  // namespace lockstep::cpu
