#include "distributed/tables/window_tables.h"

#include <algorithm>

#include "core/check.h"

namespace lockstep::distributed {

std::vector<int64_t> WindowTables::local_rows(const TableContext& context) const {
  check(context.lookups >= 1, "[tables.local_rows] lookups; expected at least 1, got {}",
        context.lookups);
  std::vector<int64_t> local = context.rows;
  for (int64_t& rows : local) rows = std::min(rows, context.lookups);
  return local;
}

void WindowTables::start() {
  check(
      gradient_->layout().padding < 0,
      "[tables.attach] tables of which a rank keeps the rows of a window; expected no row without "
      "gradient, got padding {}",
      gradient_->layout().padding);
  slots_.emplace(context_.rows, local_rows(context_));
  window_.emplace(*gradient_, flat_rows(), &*slots_);
}

Tensor WindowTables::fetch(const Tensor& rows, const Tensor& offsets) {
  // The gradient of the micro-batch before tells its rows by their places. When looking only, every
  // batch is a window.
  looking_ ? slots_->clear() : window_->end_micro();
  const Tensor places = slots_->place(rows, offsets);
  std::optional<Untimed> untimed;
  if (looking_) untimed.emplace(comm());
  bring(slots_->fresh(), slots_->fresh_places());
  return places;
}

void WindowTables::look(bool only) {
  slots_->clear();
  TableSync::look(only);
}

}  // namespace lockstep::distributed
