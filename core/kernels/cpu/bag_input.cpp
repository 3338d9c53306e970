#include "core/kernels/cpu/bag_input.h"

#include <limits>

#include "core/kernels/cpu/bag_loops.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

void expect_integers(std::string_view kernel, std::string_view what, const Tensor& x) {
  check(x.dtype() == DType::i32 || x.dtype() == DType::i64,
        "[kernel.{}] dtype of {}; expected i32 or i64, got {}", kernel, what, name_of(x.dtype()));
  check(x.numel() <= kMost, "[kernel.{}] {}; expected at most {}, got {}", kernel, what, kMost,
        x.numel());
}

template <class F>
void with_integers(const Tensor& x, F f) {
  x.dtype() == DType::i32 ? f(x.data<int32_t>()) : f(x.data<int64_t>());
}

template <class Id>
void expect_offsets(std::string_view kernel, const Id* offsets, int64_t bags, int64_t count) {
  check(offsets[0] == 0, "[kernel.{}] offsets[0]; expected 0, got {}", kernel, offsets[0]);
  bool falls = false;
  for (int64_t i = 0; i < bags; ++i) falls |= offsets[i + 1] < offsets[i];
  for (int64_t i = 0; falls && i < bags; ++i)
    check(offsets[i] <= offsets[i + 1], "[kernel.{}] offsets[{}]; expected at least {}, got {}",
          kernel, i + 1, offsets[i], offsets[i + 1]);
  check(offsets[bags] == count, "[kernel.{}] offsets[{}], the last; expected {} indices, got {}",
        kernel, bags, count, offsets[bags]);
}

// The bag, of those of one table, that position `at` is in.
int64_t bag_of(const CheckedBags& in, int64_t first_bag, int64_t at) {
  int64_t bag = first_bag;
  while (in.begin_of(bag + 1) <= at) ++bag;
  return bag;
}

bool outside(const int32_t* rows, int64_t n, int64_t limit) {
  return LOCKSTEP_PICK_LOOPS(Bag).outside(rows, n, static_cast<int32_t>(limit)) != 0;
}
bool outside(const int64_t* rows, int64_t n, int64_t limit) {
  return std::any_of(rows, rows + n, [&](int64_t row) { return row < 0 || row >= limit; });
}

template <class Id>
void expect_rows(std::string_view kernel, const Id* rows, const CheckedBags& in,
                 const kernel::TableLayout& layout) {
  for (int64_t t = 0; t < layout.tables(); ++t) {
    const int64_t limit = layout.first_row[t + 1] - layout.first_row[t];
    const int64_t begin = in.begin_of(t * in.samples), end = in.begin_of((t + 1) * in.samples);
    if (!outside(rows + begin, end - begin, limit)) continue;
    for (int64_t i = begin; i < end; ++i)
      check(rows[i] >= 0 && int64_t{rows[i]} < limit,
            "[kernel.{}] table {}, sample {}, position {} of the rows; expected 0 <= row < {} rows "
            "of the table, got {}",
            kernel, t, bag_of(in, t * in.samples, i) - t * in.samples, i, limit, rows[i]);
  }
}

}  // namespace

void expect_layout(std::string_view kernel, const Tensor& tables,
                   const kernel::TableLayout& layout) {
  expect_dtype(kernel, "tables", tables, DType::f32);
  check(tables.rank() == 2, "[kernel.{}] tables; expected [rows, width], got {}", kernel, tables);
  const auto& first = layout.first_row;
  check(first.size() >= 2 && first.front() == 0 && first.back() == tables.size(0),
        "[kernel.{}] first rows of tables; expected 0 ... {}, got {} numbers {} ... {}", kernel,
        tables.size(0), first.size(), first.empty() ? 0 : first.front(),
        first.empty() ? 0 : first.back());
  for (size_t t = 0; t + 1 < first.size(); ++t)
    check(first[t] <= first[t + 1] && first[t + 1] - first[t] <= kMost,
          "[kernel.{}] table {}; expected 0 to {} rows, got rows {} to {}", kernel, t, kMost,
          first[t], first[t + 1]);
}

CheckedBags::CheckedBags(std::string_view kernel, const kernel::Bags& bags,
                         const kernel::TableLayout& layout, int64_t batch)
    : count(bags.rows.numel()), samples(batch), mode(bags.mode) {
  expect_integers(kernel, "rows", bags.rows);
  const int64_t all = checked_mul(layout.tables(), samples);
  if (bags.offsets.defined()) {
    expect_integers(kernel, "offsets", bags.offsets);
    check(bags.offsets.numel() == all + 1,
          "[kernel.{}] offsets; expected {} for {} tables of {} bags, got {}", kernel, all + 1,
          layout.tables(), samples, bags.offsets.numel());
    with_integers(bags.offsets, [&](const auto* p) { expect_offsets(kernel, p, all, count); });
    offsets = as_i32(bags.offsets, offsets_);
  } else {
    check(count == all, "[kernel.{}] rows without offsets; expected {} for {} tables of {}, got {}",
          kernel, all, layout.tables(), samples, count);
  }
  const bool weighted = mode == BagMode::weighted;
  check(weighted == bags.weights.defined(), "[kernel.{}] weights; expected {}, got {}", kernel,
        weighted ? "one for each row" : "none unless bags are weighted",
        weighted ? "none" : describe(bags.weights));
  if (weighted) {
    expect_dtype(kernel, "weights", bags.weights, DType::f32);
    check(bags.weights.numel() == count, "[kernel.{}] weights; expected {}, got {}", kernel, count,
          bags.weights.numel());
    weights = bags.weights.data<float>();
  }
  with_integers(bags.rows, [&](const auto* p) { expect_rows(kernel, p, *this, layout); });
  rows = as_i32(bags.rows, rows_);
}

const int32_t* CheckedBags::as_i32(const Tensor& x, std::optional<Scratch<int32_t>>& room) {
  if (x.dtype() == DType::i32) return x.data<int32_t>();
  const int64_t* from = x.data<int64_t>();
  room.emplace(x.numel());
  for (int64_t i = 0; i < x.numel(); ++i) (*room)[i] = static_cast<int32_t>(from[i]);
  return room->data();
}

}  // namespace lockstep::cpu
