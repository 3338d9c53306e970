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
  /// Appends the places of rows that have one; they ascend.
  void add_places_of(std::span<const int64_t> rows, std::vector<int64_t>& places) const;
  /// The window is over.
  void clear();

 private:
  struct Known {
    int64_t row, place;
  };
  void sort_table(const int32_t* rows, int64_t n, int64_t limit);
  void keep_fresh();

  std::vector<int64_t> first_row_, first_place_;  // of each table, and an end
  std::vector<int64_t> used_;                     // places, of each table
  std::vector<Known> known_;                      // of the window, rows ascending
  std::vector<int64_t> row_of_;                   // by place
  std::vector<int64_t> fresh_, fresh_places_;
  std::vector<uint64_t> entries_, other_;  // scratch: row << 32 | position
};

}  // namespace lockstep::distributed
