#pragma once
#include "autograd/node.h"
#include "core/kernels/table_step.h"
#include "core/sparse_grad.h"

#include <span>
#include <vector>

namespace lockstep::autograd {

/// The gradient side of embedding tables, as Leaf is that of a dense parameter: where T tables of
/// one width lie in one tensor, and what backward found for their rows since the window began.
/// Micro-batches are kept as they come and coalesced together, once, so that a row is stepped once
/// with the sum of all of them. One thread at a time.
class TableGradient {
 public:
  /// `rows` of each table; `padding`: this row of every table gets no gradient (-1: none). The
  /// tables themselves may be leaves (require_grad); nothing lands there.
  TableGradient(std::span<const int64_t> rows, int64_t width, int64_t padding = -1);

  kernel::TableLayout layout() const { return {.first_row = first_row_, .padding = padding_}; }
  int64_t width() const { return width_; }

  /// What backward calls: the gradient of embedding_bag(…, bags). Neither may be written in place
  /// until the window ends: that is a UsageError then.
  void add(const Tensor& dy, const kernel::Bags& bags);
  /// Micro-batches since the window began.
  int64_t micro_batches() const { return static_cast<int64_t>(parts_.size()); }

  /// Ends the window: the rows that any of its micro-batches looked up, ascending, each with the
  /// sum in order of micro-batch and position. No rows, if there were none.
  SparseGrad coalesce();
  /// The same, not yet coalesced, for a step that does both in one pass. Good until the next call
  /// of anything else; clear() then ends the window.
  kernel::RowGradients uncoalesced();
  void clear();

 private:
  struct Part {
    Saved dy, rows, offsets, weights;
    BagMode mode;
  };
  std::vector<int64_t> first_row_;
  int64_t width_, padding_;
  std::vector<Part> parts_;
  std::vector<kernel::BagGradient> bags_;  // parts_, as kernels take them
};

}  // namespace lockstep::autograd
