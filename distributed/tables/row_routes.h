#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "distributed/comm/communicator.h"

namespace lockstep::distributed {

/// Rows on their way to the ranks that own them, and back. All tables together are cut into equal
/// ranges of rows, the last ones shorter: rank r owns rows [r·⌈R/n⌉, (r+1)·⌈R/n⌉).
class RowRoutes {
 public:
  RowRoutes(Communicator& comm, int64_t rows);

  int64_t first_owned(int rank) const { return std::min(rank * share_, rows_); }

  /// Tells the owners of these rows, which ascend, how many will come. A collective, like all
  /// below.
  void plan(std::span<const int64_t> rows);
  /// How many come from each rank.
  std::span<const int64_t> received() const { return received_; }
  int64_t received_rows() const;
  /// Sends rows as planned: `in` has `width` elements a row. Returns what came, by rank.
  Tensor to_owners(const Tensor& in, int64_t width, OpTag tag);
  /// Sends back as many as came.
  Tensor to_askers(const Tensor& in, int64_t width, OpTag tag);

  /// Bytes that came from other ranks so far, without the numbers of rows.
  double bytes() const { return bytes_; }

 private:
  Tensor swap(const Tensor& in, std::span<const int64_t> out_rows, std::span<const int64_t> in_rows,
              int64_t width, OpTag tag);

  Communicator& comm_;
  int64_t rows_, share_;
  Tensor sent_count_, received_count_;    // i64, by rank
  std::vector<int64_t> sent_, received_;  // rows by rank
  std::vector<int64_t> send_, receive_;   // elements by rank
  double bytes_ = 0;
};

}  // namespace lockstep::distributed
