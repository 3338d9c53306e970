#include "core/kernels/cpu/coalesce.h"

#include "core/kernels/cpu/sort_rows.h"

#include <limits>

namespace lockstep::cpu {

struct Coalescer::Part {
  Part(std::string_view kernel, const kernel::BagGradient& gradient,
       const kernel::TableLayout& layout, int64_t before)
      : in(kernel, gradient.bags, layout, gradient.dy.size(0)),
        dy(gradient.dy.data<float>()),
        per_sample(gradient.dy.size(1)),
        leading(per_sample - layout.tables()),
        base(before) {}
  CheckedBags in;
  const float* dy;
  int64_t per_sample, leading;  // rows of dy
  int64_t base;                 // position of its first index among those of all parts
};

Coalescer::Coalescer(std::string_view kernel, std::span<const kernel::BagGradient> bags,
                     const kernel::TableLayout& layout, int64_t width)
    : width_(width) {
  check(layout.first_row.size() >= 2, "[kernel.{}] expected at least 1 table", kernel);
  const int64_t tables = layout.tables();
  Parts parts;
  parts.reserve(bags.size());
  int64_t total = 0, dy_rows = 0;
  for (const auto& one : bags) {
    expect_dtype(kernel, "dy", one.dy, DType::f32);
    check(one.dy.rank() == 3 && one.dy.size(1) >= tables && one.dy.size(2) == width,
          "[kernel.{}] dy; expected [samples, at least {}, {}], got {}", kernel, tables, width,
          one.dy);
    parts.emplace_back(kernel, one, layout, total);
    total += parts.back().in.count;
    dy_rows = one.dy.size(0) * one.dy.size(1);
  }
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  check(total <= kMost && dy_rows <= kMost, "[kernel.{}] expected at most {} indices, got {}",
        kernel, kMost, std::max(total, dy_rows));
  plain_ = parts.size() == 1 && parts[0].in.mode == BagMode::sum;
  if (plain_) {
    from_ = parts[0].dy;
  } else {
    sources_.emplace(total);
    scales_.emplace(total);
  }
  entries_.emplace(total);
  rows_.emplace(total);
  starts_.emplace(total + tables);
  const Scratch<uint64_t> other(total);
  const auto all_of = [&](int64_t t) {
    int64_t n = 0;
    for (const Part& part : parts)
      n += part.in.begin_of((t + 1) * part.in.samples) - part.in.begin_of(t * part.in.samples);
    return n;
  };
  places_.reserve(tables);
  for (int64_t t = 0, place = 0; t < tables; ++t) places_.push_back(place), place += all_of(t);
  first_.resize(tables + 1);
  parallel_for(tables, row_grain(total / tables * 16), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      uint64_t* to = entries_->data() + places_[t];
      const int64_t n = fill(parts, t, layout.padding, to);
      sort_rows(to, other.data() + places_[t], n, layout.first_row[t + 1] - layout.first_row[t]);
      first_[t + 1] = group(t, layout.first_row[t], n);
    }
  });
  for (int64_t t = 0; t < tables; ++t) first_[t + 1] += first_[t];
}

// Finds the rows among a table's sorted entries; returns how many.
int64_t Coalescer::group(int64_t table, int64_t first_row, int64_t entries) {
  const uint64_t* from = entries_->data() + places_[table];
  int64_t* rows = rows_->data() + places_[table];
  uint32_t* starts = starts_->data() + places_[table] + table;
  int64_t count = 0;
  for (int64_t e = 0; e < entries; ++e) {
    // Written at every entry; what the last one of a row wrote stays. No branch to mispredict.
    rows[count] = first_row + static_cast<int64_t>(from[e] >> 32);
    starts[count + 1] = static_cast<uint32_t>(places_[table] + e + 1);
    count += e + 1 == entries || from[e] >> 32 != from[e + 1] >> 32;
  }
  starts[0] = static_cast<uint32_t>(places_[table]);
  return count;
}

// The entries of one table in order of position; returns how many.
int64_t Coalescer::fill(const Parts& parts, int64_t table, int64_t padding, uint64_t* to) {
  uint64_t* const start = to;
  for (const Part& part : parts) {
    const CheckedBags& in = part.in;
    if (plain_ && in.offsets == nullptr && padding < 0) {  // what most calls are
      const int32_t* rows = in.rows + table * in.samples;
      for (int64_t b = 0; b < in.samples; ++b)
        to[b] = uint64_t{static_cast<uint32_t>(rows[b])} << 32 |
                static_cast<uint64_t>(b * part.per_sample + part.leading + table);
      to += in.samples;
      continue;
    }
    for (int64_t b = 0; b < in.samples; ++b) {
      const int64_t bag = table * in.samples + b, end = in.begin_of(bag + 1);
      const int64_t row_of_dy = b * part.per_sample + part.leading + table;
      const float scale =
          in.mode == BagMode::mean ? 1.0f / static_cast<float>(end - in.begin_of(bag)) : 1.0f;
      for (int64_t i = in.begin_of(bag); i < end; ++i) {
        const int64_t row = in.rows[i];
        if (row == padding) continue;
        const int64_t at = plain_ ? row_of_dy : part.base + i;
        *to++ = static_cast<uint64_t>(row) << 32 | static_cast<uint64_t>(at);
        if (plain_) continue;
        (*sources_)[at] = part.dy + row_of_dy * width_;
        (*scales_)[at] = in.mode == BagMode::weighted ? in.weights[i] : scale;
      }
    }
  }
  return to - start;
}

void Coalescer::sums(float* to, const uint32_t* starts, int64_t n, int64_t ahead,
                     const int64_t* rows, std::span<const Soon> soon) const {
  LOCKSTEP_PICK_LOOPS(Bag).gather({.sums = to,
                                   .entries = entries_->data(),
                                   .starts = starts,
                                   .groups = n,
                                   .width = width_,
                                   .ahead = ahead,
                                   .from = from_,
                                   .sources = plain_ ? nullptr : sources_->data(),
                                   .scales = plain_ ? nullptr : scales_->data(),
                                   .row = rows,
                                   .soon = soon.data(),
                                   .soon_count = static_cast<int>(soon.size())});
}

}  // namespace lockstep::cpu
