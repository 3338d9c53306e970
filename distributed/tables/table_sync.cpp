#include "distributed/tables/table_sync.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/check.h"
#include "distributed/control.h"

namespace lockstep::distributed {

void TableSync::attach(const TableContext& context, const Tensor& weight,
                       autograd::TableGradient& gradient) {
  check(context.comm != nullptr && context.optimizer != nullptr,
        "[tables.attach] expected a communicator and a table optimizer");
  expect_same_on_all_ranks(
      *context.comm,
      fmt::format("tables of {} rows\nof width {}", fmt::join(context.rows, ", "), context.width),
      "embedding tables");
  context_ = context;
  weight_ = weight;
  gradient_ = &gradient;
  flat_rows_ = 0;
  for (const int64_t n : context.rows) flat_rows_ = checked_add(flat_rows_, n);
  (void)checked_mul(flat_rows_, context.width);

  const std::vector<int64_t> local = local_rows(context);
  const auto first = gradient.layout().first_row;
  bool fits = first.size() == local.size() + 1 && gradient.width() == context.width;
  for (size_t t = 0; fits && t < local.size(); ++t) fits = first[t + 1] - first[t] == local[t];
  check(fits,
        "[tables.attach] the model's tables; expected rows {} of width {}, got {} in all of {}",
        fmt::join(local, ", "), context.width, first.back(), gradient.width());
  check(weight.dtype() == DType::f32 && weight.shape() == Shape({first.back(), context.width}),
        "[tables.attach] the model's tables; expected f32 [{}, {}], got {}", first.back(),
        context.width, weight);
  start();
}

std::unique_ptr<TableSync> make_table_sync(const Spec& spec) {
  return Registry<TableSync>::instance().make(spec);
}

}  // namespace lockstep::distributed
