#include "core/kernels/cpu/bag_loops.h"

#include "core/kernels/cpu/vec.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kLine = 16;          // floats of a line of cache
constexpr int64_t kMostLines = 4;      // of a row; the processor goes on by itself
constexpr int64_t kEntriesAhead = 16;  // gradients fetched before they are added

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

// Fetches what is looked up next, a row at a call.
struct Ahead {
  explicit Ahead(const PoolTask& k) : task(k), at(k.next) {}
  inline void one() {
    if (at < task.next_end)
      fetch(task.next_table + int64_t{task.rows[at++]} * task.width, task.width);
  }
  const PoolTask& task;
  int64_t at;
};

template <BagMode kMode>
struct Pool {
  const PoolTask& task;

  template <int kVectors>
  inline void run(int64_t c, int64_t n) const {
    const PoolTask& k = task;
    Ahead ahead(k);
    if (c > 0) ahead.at = k.next_end;  // fetched once
    const auto read = [&](Columns<kVectors>& x, int64_t i) {
      ahead.one();
      x.read(k.table + int64_t{k.rows[i]} * k.width + c, n);
      if constexpr (kMode == BagMode::weighted) x.scale(k.weights[i]);
    };
    for (int64_t b = 0; b < k.bags; ++b) {
      const int64_t begin = k.offsets[b], end = k.offsets[b + 1];
      Columns<kVectors> sum = {}, row;
      if (begin < end) read(sum, begin);
      for (int64_t i = begin + 1; i < end; ++i) read(row, i), sum.add(row);
      if (kMode == BagMode::mean && end - begin > 1) sum.divide(static_cast<float>(end - begin));
      sum.write(k.out + b * k.stride + c, n);
    }
  }
};

// One row a bag: sums and means are copies.
template <bool kWeighted>
struct Copy {
  const PoolTask& task;

  template <int kVectors>
  inline void run(int64_t c, int64_t n) const {
    const PoolTask& k = task;
    const int32_t *rows = k.rows + k.first, *next = k.rows + k.next;
    const int64_t fetched = c > 0 ? 0 : k.next_end - k.next < k.bags ? k.next_end - k.next : k.bags;
    float* out = k.out + c;
    const auto copy = [&](int64_t b) {
      Columns<kVectors> row;
      row.read(k.table + int64_t{rows[b]} * k.width + c, n);
      if constexpr (kWeighted) row.scale(k.weights[k.first + b]);
      row.write(out, n);
      out += k.stride;
    };
    for (int64_t b = 0; b < fetched; ++b) {
      fetch(k.next_table + int64_t{next[b]} * k.width, k.width);
      copy(b);
    }
    for (int64_t b = fetched; b < k.bags; ++b) copy(b);
  }
};

template <BagMode kMode>
void pool(const PoolTask& task) {
  if (task.offsets == nullptr)
    over_columns(task.width, Copy<kMode == BagMode::weighted>{task});
  else
    over_columns(task.width, Pool<kMode>{task});
}

int outside(const int32_t* rows, int64_t n, int32_t limit) {
  IntVec any = {};
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const IntVec row = *reinterpret_cast<const UnalignedIntVec*>(rows + i);
    any |= (row < 0) | (row >= set_int(limit));
  }
  int found = 0;
  for (int lane = 0; lane < kWidth; ++lane) found |= any[lane];
  for (; i < n; ++i) found |= rows[i] < 0 || rows[i] >= limit;
  return found != 0;
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
    const int64_t last = k.starts[k.groups + k.ahead];
    const auto next = [&](Columns<kVectors>& x, int64_t e) {
      if (c == 0 && e + kEntriesAhead < last) fetch(source(e + kEntriesAhead), k.width);
      read(x, e);
    };
    for (int64_t g = 0; g < k.groups; ++g) {
      Columns<kVectors> sum, more;
      const int64_t begin = k.starts[g], end = k.starts[g + 1];
      for (int i = 0; c == 0 && i < k.soon_count; ++i)
        fetch(k.soon[i].rows + k.row[g] * k.soon[i].width, k.soon[i].width);
      next(sum, begin);
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

const BagLoops LOCKSTEP_LOOPS_TABLE(Bag) = {outside, pool<BagMode::sum>, pool<BagMode::mean>,
                                            pool<BagMode::weighted>, gather};

}  // namespace lockstep::cpu
