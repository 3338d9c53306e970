#include "core/kernels/cpu/bag_loops.h"

#include "core/kernels/cpu/vec.h"

namespace lockstep::cpu {
namespace {


constexpr int64_t kLine = 16;          // floats of a line of cache
constexpr int64_t kMostLines = 4;      // of a row; the processor goes on by itself
constexpr int64_t kEntriesAhead = 12;  // gradients fetched before they are added

// Rows lie on lines of their own where they are as wide as some.
inline void fetch(const float* row, int64_t width) {
  const int64_t end = width < kLine * kMostLines ? width : kLine * kMostLines;
  for (int64_t i = 0; i < end; i += kLine) __builtin_prefetch(row + i);
}

/// Columns [c, c + kVectors · kWidth) of a row; with kVectors 0 the last n < kWidth columns.
template <int kVectors>
struct Columns {
  static constexpr int kCount = kVectors == 0 ? 1 : kVectors;
  Vec part[kCount];

  inline void read(const float* p, int64_t n) {
    if constexpr (kVectors == 0)
      part[0] = load_n(p, n);
    else
      for (int v = 0; v < kCount; ++v) part[v] = load(p + v * kWidth);
  }
  inline void write(float* p, int64_t n) const {
    if constexpr (kVectors == 0)
      store_n(p, part[0], n);
    else
      for (int v = 0; v < kCount; ++v) store(p + v * kWidth, part[v]);
  }
  inline void scale(float by) {
    for (int v = 0; v < kCount; ++v) part[v] *= set(by);
  }
  inline void divide(float by) {
    for (int v = 0; v < kCount; ++v) part[v] /= set(by);
  }
  inline void add(const Columns& other) {
    for (int v = 0; v < kCount; ++v) part[v] += other.part[v];
  }
};

// Calls f.template operator()<kVectors>(c, n) for pieces of a row: as many vectors at a time as
// there are, then what is left.
template <class F>
inline void over_columns(int64_t width, const F& f) {
  int64_t c = 0;
  for (; width - c >= 4 * kWidth; c += 4 * kWidth) f.template run<4>(c, 0);
  if (width - c >= 2 * kWidth) f.template run<2>(c, 0), c += 2 * kWidth;
  if (width - c >= kWidth) f.template run<1>(c, 0), c += kWidth;
  if (c < width) f.template run<0>(c, width - c);
}

template <BagMode kMode>
struct Pool {
  const PoolTask& task;

  template <int kVectors>
  inline void run(int64_t c, int64_t n) const {
    const PoolTask& k = task;
    int64_t next = c == 0 ? k.next : k.next_end;  // fetched once
    const auto add_row = [&](Columns<kVectors>& x, int64_t i) {
      if (next < k.next_end) fetch(k.next_table + int64_t{k.rows[next++]} * k.width, k.width);
      x.read(k.table + int64_t{k.rows[i]} * k.width + c, n);
      if constexpr (kMode == BagMode::weighted) x.scale(k.weights[i]);
    };
    for (int64_t b = 0; b < k.bags; ++b) {
      const int64_t begin = k.offsets == nullptr ? k.first + b : k.offsets[b];
      const int64_t end = k.offsets == nullptr ? begin + 1 : k.offsets[b + 1];
      Columns<kVectors> sum = {}, row;
      if (begin < end) add_row(sum, begin);
      for (int64_t i = begin + 1; i < end; ++i) add_row(row, i), sum.add(row);
      if (kMode == BagMode::mean && end - begin > 1) sum.divide(static_cast<float>(end - begin));
      sum.write(k.out + b * k.stride + c, n);
    }
  }
};

template <BagMode kMode>
void pool(const PoolTask& task) {
  over_columns(task.width, Pool<kMode>{task});
}

template <bool kScaled>
struct Gather {
  const GatherTask& task;

  template <int kVectors>
  inline void run(int64_t c, int64_t n) const {
    const GatherTask& k = task;
    const auto source = [&](int64_t e) {
      const uint32_t at = static_cast<uint32_t>(k.entries[e]);
      return kScaled ? k.sources[at] : k.from + at * k.width;
    };
    const auto read = [&](Columns<kVectors>& x, int64_t e) {
      x.read(source(e) + c, n);
      if constexpr (kScaled) x.scale(k.scales[static_cast<uint32_t>(k.entries[e])]);
    };
    const int64_t last = k.ends[k.groups + k.ahead - 1];
    const auto next = [&](Columns<kVectors>& x, int64_t e) {
      if (c == 0 && e + kEntriesAhead < last) fetch(source(e + kEntriesAhead), k.width);
      read(x, e);
    };
    for (int64_t g = 0; g < k.groups; ++g) {
      Columns<kVectors> sum, more;
      const int64_t begin = k.begins[g], end = k.ends[g];
      next(sum, begin);  // no group is empty
      for (int64_t e = begin + 1; e < end; ++e) next(more, e), sum.add(more);
      sum.write(k.sums + g * k.width + c, n);
    }
  }
};

void gather(const GatherTask& task) {
  if (task.groups == 0) return;
  if (task.sources == nullptr)
    over_columns(task.width, Gather<false>{task});
  else
    over_columns(task.width, Gather<true>{task});
}

}  // namespace

const BagLoops LOCKSTEP_LOOPS_TABLE(Bag) = {pool<BagMode::sum>, pool<BagMode::mean>,
                                            pool<BagMode::weighted>, gather};

}  // namespace lockstep::cpu
