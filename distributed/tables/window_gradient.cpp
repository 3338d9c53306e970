#include "distributed/tables/window_gradient.h"

#include "distributed/tables/merge_rows.h"
#include "distributed/tables/row_slots.h"

namespace lockstep::distributed {

WindowGradient::WindowGradient(autograd::TableGradient& model, int64_t flat_rows,
                               const RowSlots* slots)
    : model_(model), slots_(slots), sum_(sum_of_lists(flat_rows, model.width())) {}

void WindowGradient::end_micro() {
  if (model_.micro_batches() == 0) return;
  const SparseGrad one = model_.coalesce();
  if (slots_ != nullptr) slots_->to_rows(one.rows);
  // The places of a window's first micro-batch ascend as its rows do; those of later ones do not.
  if (++micros_ == 1) {
    first_ = one;
    return;
  }
  if (micros_ == 2) add_list(sum_, first_);
  add_list(sum_, one);
}

SparseGrad WindowGradient::take() {
  end_micro();
  SparseGrad all = micros_ == 1 ? first_ : sum_.coalesce();
  clear();
  return all;
}

void WindowGradient::clear() {
  model_.clear();
  sum_.clear();
  first_ = {};
  micros_ = 0;
}

}  // namespace lockstep::distributed
