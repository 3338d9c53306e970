#pragma once
#include <optional>
#include <span>

#include "distributed/tables/row_slots.h"
#include "distributed/tables/table_sync.h"
#include "distributed/tables/window_gradient.h"

namespace lockstep::distributed {

/// What table strategies share whose ranks keep the rows of a window only: a fetch gives places to
/// rows that the window has not looked up yet, and the strategy brings their values there. They are
/// forgotten when the window ends.
class WindowTables : public TableSync {
 public:
  std::vector<int64_t> local_rows(const TableContext& context) const override;
  int64_t copies(int64_t) const override { return 1; }
  Tensor fetch(const Tensor& rows, const Tensor& offsets) override;

 protected:
  /// UsageError where the model's tables have a row that gets no gradient: places know of none.
  void start() override;
  void look(bool only) override;

  /// Writes the values of these rows, which ascend, to these places of weight_. Called on all ranks
  /// for every micro-batch, without rows, too.
  virtual void bring(std::span<const int64_t> rows, std::span<const int64_t> places) = 0;
  /// The window's gradient, rows of all tables ascending. Places are forgotten with end_window().
  SparseGrad window_gradient() { return window_->take(); }
  void end_window() { slots_->clear(); }
  const RowSlots& slots() const { return *slots_; }

 private:
  std::optional<RowSlots> slots_;
  std::optional<WindowGradient> window_;
};

}  // namespace lockstep::distributed
