#include "distributed/tables/row_slots.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/check.h"
#include "core/kernels/cpu/bag_input.h"

namespace lockstep::distributed {
namespace {

std::vector<int64_t> starts_of(std::span<const int64_t> counts) {
  std::vector<int64_t> starts{0};
  for (const int64_t n : counts) starts.push_back(checked_add(starts.back(), n));
  return starts;
}

}  // namespace

RowSlots::RowSlots(std::span<const int64_t> rows, std::span<const int64_t> places)
    : first_row_(starts_of(rows)), first_place_(starts_of(places)), used_(rows.size()) {
  const int64_t all = first_place_.back();
  check(all <= std::numeric_limits<int32_t>::max() / 4,
        "[tables.slots] rows of a window; expected at most {}, got {}",
        std::numeric_limits<int32_t>::max() / 4, all);
  const size_t size = std::bit_ceil(2 * static_cast<size_t>(std::max<int64_t>(all, 1)));
  table_.resize(size);
  shift_ = 64 - std::countr_zero(size);
  row_of_.resize(static_cast<size_t>(all));
}

// The row's entry, or the empty one that it would get. (Fibonacci hashing: Knuth, TAOCP 3, 6.4)
size_t RowSlots::find(int64_t row) const {
  const size_t mask = table_.size() - 1;
  size_t at = static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15u >> shift_;
  while (table_[at].window == window_ && table_[at].row != row) at = (at + 1) & mask;
  return at;
}

Tensor RowSlots::place(const Tensor& rows, const Tensor& offsets) {
  fresh_.clear();
  fresh_places_.clear();
  if (!rows.defined()) return {};
  const int64_t tables = static_cast<int64_t>(used_.size());
  const int64_t bags = offsets.defined() ? offsets.numel() - 1 : rows.numel();
  check(bags >= 0 && bags % tables == 0,
        "[tables.fetch] bags; expected as many for each of {} tables, got {}", tables, bags);
  const cpu::CheckedBags in("embedding_bag", {.rows = rows, .offsets = offsets},
                            {.first_row = first_row_}, bags / tables);
  const Tensor out = Tensor::empty({in.count}, DType::i32);
  int32_t* to = out.mutable_data<int32_t>();
  at_.resize(static_cast<size_t>(in.count));
  for (int64_t t = 0; t < tables; ++t) {
    const int64_t begin = in.begin_of(t * in.samples), end = in.begin_of((t + 1) * in.samples);
    const size_t first_fresh = fresh_.size();
    const size_t room = static_cast<size_t>(first_place_[t + 1] - first_place_[t] - used_[t]);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = first_row_[t] + in.rows[i];
      const size_t at = find(row);
      at_[i] = static_cast<uint32_t>(at);
      if (table_[at].window == window_) continue;
      check(fresh_.size() - first_fresh < room,
            "[tables.fetch] table {}; expected at most {} rows in a window, got more", t,
            first_place_[t + 1] - first_place_[t]);
      table_[at] = {.row = row, .place = -1, .window = window_};
      fresh_.push_back(row);
    }
    give_places(t, first_fresh);
    for (int64_t i = begin; i < end; ++i)
      to[i] = static_cast<int32_t>(table_[at_[i]].place - first_place_[t]);
  }
  return out;
}

void RowSlots::give_places(int64_t table, size_t first_fresh) {
  std::sort(fresh_.begin() + static_cast<std::ptrdiff_t>(first_fresh), fresh_.end());
  for (size_t i = first_fresh; i < fresh_.size(); ++i) {
    const int64_t place = first_place_[table] + used_[table]++;
    table_[find(fresh_[i])].place = place;
    row_of_[place] = fresh_[i];
    fresh_places_.push_back(place);
  }
}

void RowSlots::to_rows(const Tensor& places) const {
  int64_t* all = places.mutable_data<int64_t>();
  for (int64_t i = 0; i < places.numel(); ++i) all[i] = row_of_[all[i]];
}

void RowSlots::clear() {
  ++window_;
  std::fill(used_.begin(), used_.end(), 0);
  fresh_.clear();
  fresh_places_.clear();
}

}  // namespace lockstep::distributed
