#pragma once
#include <optional>

#include "autograd/table_gradient.h"
#include "core/sparse_grad.h"

namespace lockstep::distributed {

class RowSlots;

/// A window's gradient by rows of all tables, made of what backward left in the model's
/// TableGradient. Each micro-batch is coalesced by itself and they are added up in order, as ranks
/// are: N micro-batches of one rank then have the bits of N ranks with one each.
class WindowGradient {
 public:
  /// `slots`: the model's rows are places; null: they are the tables' own.
  WindowGradient(autograd::TableGradient& model, int64_t flat_rows,
                 const RowSlots* slots = nullptr);

  /// Coalesces what backward has left; between micro-batches, and before places are forgotten.
  void end_micro();
  /// Ends the window. Rows ascend.
  SparseGrad take();
  /// Whether the window is one micro-batch at most, which the model still has as backward left it.
  bool untouched() const { return micros_ == 0 && model_.micro_batches() <= 1; }
  void clear();

 private:
  autograd::TableGradient& model_;
  const RowSlots* slots_;
  autograd::TableGradient sum_;  // of the window's micro-batches, from the second on
  SparseGrad first_;
  int64_t micros_ = 0;
};

}  // namespace lockstep::distributed
