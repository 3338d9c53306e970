#include "autograd/table_gradient.h"

namespace lockstep::autograd {

TableGradient::TableGradient(std::span<const int64_t> rows, int64_t width, int64_t padding)
    : width_(width), padding_(padding) {
  check(!rows.empty() && width >= 1,
        "[autograd.table_gradient] expected at least 1 table of width 1, got {} of {}", rows.size(),
        width);
  check(padding >= -1, "[autograd.table_gradient] padding; expected a row or -1, got {}", padding);
  first_row_.reserve(rows.size() + 1);
  first_row_.push_back(0);
  for (const int64_t n : rows) {
    check(n >= 1, "[autograd.table_gradient] table {}; expected at least 1 row, got {}",
          first_row_.size() - 1, n);
    first_row_.push_back(checked_add(first_row_.back(), n));
  }
}

void TableGradient::add(const Tensor& dy, const kernel::Bags& bags) {
  Part& part = parts_.emplace_back();
  part.dy = dy, part.rows = bags.rows, part.offsets = bags.offsets, part.weights = bags.weights;
  part.mode = bags.mode;
}

kernel::RowGradients TableGradient::uncoalesced() {
  const auto tensor = [](const Saved& x) { return x.defined() ? x.get() : Tensor(); };
  bags_.clear();
  for (const Part& part : parts_)
    bags_.push_back({part.dy,
                     {.rows = part.rows,
                      .offsets = tensor(part.offsets),
                      .weights = tensor(part.weights),
                      .mode = part.mode}});
  return {.rows = {}, .values = {}, .bags = bags_, .layout = layout()};
}

SparseGrad TableGradient::coalesce() {
  int64_t most = 0;
  const kernel::RowGradients all = uncoalesced();
  for (const auto& one : all.bags) most = checked_add(most, one.bags.rows.numel());
  // As large as the indices are many, so that steps ask the allocator for the same every time.
  const Tensor rows = Tensor::empty({most}, DType::i64), values = Tensor::empty({most, width_});
  const int64_t count = kernel::coalesce_bags(rows, values, all.bags, all.layout);
  clear();
  return {rows.slice(0, count), values.slice(0, count)};
}

void TableGradient::clear() {
  parts_.clear();
  bags_.clear();
}

}  // namespace lockstep::autograd
