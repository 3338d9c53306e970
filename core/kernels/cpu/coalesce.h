#pragma once
#include "core/kernels/cpu/bag_input.h"

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

  /// Rows that were looked up, and which: of the flat tensor, ascending.
  int64_t count() const { return count_; }
  const int64_t* rows() const { return rows_->data(); }
  /// The sums of the gradients of those rows [begin, end), to `to`, on the calling thread.
  void values(float* to, int64_t begin, int64_t end) const;

 private:
  struct Part;  // one of the bags
  using Parts = std::vector<Part, PoolAllocator<Part>>;
  int64_t fill(const Parts& parts, int64_t table, int64_t padding, uint64_t* to);

  int64_t width_, count_ = 0;
  bool plain_ = false;           // one batch of sums: an entry's lower half is a row of dy
  const float* from_ = nullptr;  // dy, where plain
  std::optional<Scratch<uint64_t>> entries_;
  std::optional<Scratch<const float*>> sources_;  // of each position, where not plain
  std::optional<Scratch<float>> scales_;
  std::optional<Scratch<int64_t>> rows_;
  std::optional<Scratch<uint32_t>> begins_, ends_;  // of the entries of a row
};

}  // namespace lockstep::cpu
