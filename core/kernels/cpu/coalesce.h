#pragma once
#include "core/kernels/cpu/bag_input.h"
#include "core/kernels/cpu/bag_loops.h"

#include <vector>

namespace lockstep::cpu {

/// Note [Coalescing by sorting]
/// The gradients of a window's bags, by rows. What was looked up in one table is one run of a
/// batch, so each table is sorted apart: numbers of row << 32 | position, by radix, where a stable
/// sort leaves equal rows in order of position. The order in which gradients are added is then that
/// of the positions, whatever the threads. Nothing is as large as a table; all memory is scratch.
class Coalescer {
 public:
  /// Sorts. Errors as in kernel::coalesce_bags.
  Coalescer(std::string_view kernel, std::span<const kernel::BagGradient> bags,
            const kernel::TableLayout& layout, int64_t width);

  /// Rows that were looked up.
  int64_t count() const { return first_.back(); }
  /// Runs of them of one table each, of those [begin, end): f(rows of the flat tensor, how many,
  /// the entries that are theirs).
  template <class F>
  void over_runs(int64_t begin, int64_t end, F f) const {
    auto table = std::upper_bound(first_.begin(), first_.end(), begin) - first_.begin() - 1;
    for (; begin < end; ++table) {
      const int64_t skip = begin - first_[table], stop = std::min(end, first_[table + 1]);
      f(rows_->data() + places_[table] + skip, stop - begin,
        starts_->data() + places_[table] + table + skip);
      begin = stop;
    }
  }
  /// The sums of the gradients of n of a run's rows, to `to`; `ahead` more follow them in the run.
  /// Meanwhile fetches `rows` of `soon`.
  void sums(float* to, const uint32_t* starts, int64_t n, int64_t ahead,
            const int64_t* rows = nullptr, std::span<const Soon> soon = {}) const;

 private:
  struct Part;  // one of the bags
  using Parts = std::vector<Part, PoolAllocator<Part>>;
  using Counts = std::vector<int64_t, PoolAllocator<int64_t>>;
  int64_t fill(const Parts& parts, int64_t table, int64_t padding, uint64_t* to);
  int64_t group(int64_t table, int64_t first_row, int64_t entries);

  int64_t width_;
  bool plain_ = false;           // one batch of sums: an entry's lower half is a row of dy
  const float* from_ = nullptr;  // dy, where plain
  Counts places_;                // of each table's first entry
  Counts first_;                 // of each table's rows, among those of all: tables + 1
  std::optional<Scratch<uint64_t>> entries_;
  std::optional<Scratch<const float*>> sources_;  // of each position, where not plain
  std::optional<Scratch<float>> scales_;
  std::optional<Scratch<int64_t>> rows_;     // of table t from place t on
  std::optional<Scratch<uint32_t>> starts_;  // of their entries, and an end; from place t + t on
};

}  // namespace lockstep::cpu
