#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace lockstep::distributed {

/// Where a rank that keeps only the rows of a window has them. Rows get places in their table's
/// part of the local tensor as micro-batches first look them up, those of a micro-batch ascending,
/// until the window ends. Rows are told by their number in the flat tensor of all tables, places by
/// that in the local one.
class RowSlots {
 public:
  /// `rows`, `places`: of each table.
  RowSlots(std::span<const int64_t> rows, std::span<const int64_t> places);

  /// What a micro-batch looks up (kernel::Bags), as i32 places counted from the first of their
  /// table; undefined where there is none. UsageErrors of kernel::embedding_bag for rows out of
  /// range; and where a window looks up more rows of a table than it has places.
  Tensor place(const Tensor& rows, const Tensor& offsets);
  /// Rows that the last place() was the first to look up, ascending, and their places.
  std::span<const int64_t> fresh() const { return fresh_; }
  std::span<const int64_t> fresh_places() const { return fresh_places_; }

  /// Replaces places (i64) by their rows.
  void to_rows(const Tensor& places) const;
  /// The place of a row that has one.
  int64_t place_of(int64_t row) const { return table_[find(row)].place; }
  /// The window is over.
  void clear();

 private:
  // A hash table with open addresses: entries of another window count as empty.
  struct Entry {
    int64_t row = 0;
    int64_t place = 0;
    uint64_t window = 0;
  };
  size_t find(int64_t row) const;
  void give_places(int64_t table, size_t first_fresh);

  std::vector<int64_t> first_row_, first_place_;  // of each table, and an end
  std::vector<int64_t> used_;                     // places, of each table
  std::vector<Entry> table_;                      // a power of two, at least twice the places
  int shift_ = 0;
  uint64_t window_ = 1;
  std::vector<int64_t> row_of_;  // by place
  std::vector<int64_t> fresh_, fresh_places_;
  std::vector<uint32_t> at_;  // entries of a micro-batch's lookups
};

}  // namespace lockstep::distributed
