#include "distributed/tables/merge_rows.h"

#include <array>
#include <limits>

#include "core/check.h"

namespace lockstep::distributed {

autograd::TableGradient sum_of_lists(int64_t rows, int64_t width) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  check(rows <= kMost, "[tables.merge] rows of all tables; expected at most {}, got {}", kMost,
        rows);
  return autograd::TableGradient(std::array{rows}, width);
}

void add_list(autograd::TableGradient& sum, const SparseGrad& list) {
  if (list.count() == 0) return;
  sum.add(list.values.reshape({list.count(), 1, sum.width()}), {.rows = list.rows});
}

}  // namespace lockstep::distributed
