#include "distributed/tables/row_slots.h"

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "core/kernels/cpu/bag_input.h"
#include "core/kernels/cpu/sort_rows.h"

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
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const int64_t all = first_place_.back();
  check(all <= kMost, "[tables.slots] rows of a window; expected at most {}, got {}", kMost, all);
  row_of_.resize(static_cast<size_t>(all));
}

// Looks up by sorting: a micro-batch's rows ascend then, table after table, as those do that are
// known, so that one walk along both finds them.
Tensor RowSlots::place(const Tensor& rows, const Tensor& offsets) {
  fresh_.clear();
  fresh_places_.clear();
  if (!rows.defined()) return {};
  const auto tables = static_cast<int64_t>(used_.size());
  const int64_t bags = offsets.defined() ? offsets.numel() - 1 : rows.numel();
  check(bags >= 0 && bags % tables == 0,
        "[tables.fetch] bags; expected as many for each of {} tables, got {}", tables, bags);
  const cpu::CheckedBags in("embedding_bag", {.rows = rows, .offsets = offsets},
                            {.first_row = first_row_}, bags / tables);
  const Tensor out = Tensor::empty({in.count}, DType::i32);
  auto known = known_.cbegin();
  for (int64_t t = 0; t < tables; ++t) {
    const int64_t begin = in.begin_of(t * in.samples), end = in.begin_of((t + 1) * in.samples);
    const int64_t first_place = first_place_[t], room = first_place_[t + 1] - first_place;
    int32_t* to = out.mutable_data<int32_t>() + begin;
    sort_table(in.rows + begin, end - begin, first_row_[t + 1] - first_row_[t]);
    int64_t last = -1, place = -1;  // in its table
    for (int64_t e = 0; e < end - begin; ++e) {
      const int64_t row = first_row_[t] + static_cast<int64_t>(entries_[e] >> 32);
      if (row != last) {
        while (known != known_.cend() && known->row < row) ++known;
        if (known != known_.cend() && known->row == row) {
          place = known->place - first_place;
        } else {
          check(used_[t] < room,
                "[tables.fetch] table {}; expected at most {} rows in a window, got more", t, room);
          place = used_[t]++;
          row_of_[first_place + place] = row;
          fresh_.push_back(row);
          fresh_places_.push_back(first_place + place);
        }
        last = row;
      }
      to[static_cast<uint32_t>(entries_[e])] = static_cast<int32_t>(place);
    }
  }
  keep_fresh();
  return out;
}

// Leaves the rows in entries_, ascending.
void RowSlots::sort_table(const int32_t* rows, int64_t n, int64_t limit) {
  if (static_cast<int64_t>(entries_.size()) < n) {
    entries_.resize(static_cast<size_t>(n));
    other_.resize(static_cast<size_t>(n));
  }
  for (int64_t i = 0; i < n; ++i)
    entries_[i] = static_cast<uint64_t>(rows[i]) << 32 | static_cast<uint64_t>(i);
  cpu::sort_rows(entries_.data(), other_.data(), n, limit);
}

// Merges from the end on, in place.
void RowSlots::keep_fresh() {
  size_t old = known_.size(), fresh = fresh_.size();
  known_.resize(old + fresh);
  for (size_t to = old + fresh; fresh > 0; --to) {
    if (old > 0 && known_[old - 1].row > fresh_[fresh - 1]) {
      known_[to - 1] = known_[old - 1];
      --old;
    } else {
      known_[to - 1] = {fresh_[fresh - 1], fresh_places_[fresh - 1]};
      --fresh;
    }
  }
}

void RowSlots::to_rows(const Tensor& places) const {
  int64_t* all = places.mutable_data<int64_t>();
  for (int64_t i = 0; i < places.numel(); ++i) all[i] = row_of_[all[i]];
}

void RowSlots::add_places_of(std::span<const int64_t> rows, std::vector<int64_t>& places) const {
  auto known = known_.cbegin();
  for (const int64_t row : rows) {
    while (known->row < row) ++known;
    places.push_back(known->place);
  }
}

void RowSlots::clear() {
  std::fill(used_.begin(), used_.end(), 0);
  known_.clear();
  fresh_.clear();
  fresh_places_.clear();
}

}  // namespace lockstep::distributed
