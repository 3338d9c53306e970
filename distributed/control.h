#pragma once
#include <span>
#include <string>
#include <vector>

#include "distributed/comm/communicator.h"

namespace lockstep::distributed {

/// What a rank tells the others about its window, and what came out of all of them.
struct Control {
  double weight = 0;       ///< of the window's micro-batches
  int64_t micros = 0;      ///< micro-batches
  int64_t active = 0;      ///< 1: had data; of all: how many had
  int64_t non_finite = 0;  ///< 1: saw NaN or infinity in a gradient; of all: how many did
  int64_t first_bad = -1;  ///< slice of the first such parameter in order of construction, which
                           ///< has the highest number; -1: none
  double scale = 1;        ///< the loss scale; of all: rank 0's
};

/// The one small exchange a step: a Control and a flag per parameter from every rank, combined in
/// rank order, so that all ranks compute the same verdict. An all-gather, since weights are doubles
/// and errors name ranks.
class ControlExchange {
 public:
  ControlExchange(Communicator& comm, int flags);

  /// Sums over ranks. `comm` may be null: this rank alone.
  Control combine(Communicator* comm, const Control& mine, std::span<const uint8_t> used);
  /// After combine(): parameters that some rank used.
  std::span<const uint8_t> used() const { return used_; }
  /// After combine(): UsageError naming all ranks and their loss scales, unless these are equal.
  /// The same on all ranks: a sum of gradients of different scales means nothing.
  void expect_equal_scales(int64_t step) const;
  /// After combine(): ranks that had data and yet did not use this parameter.
  std::vector<int> ranks_without(int flag) const;

 private:
  const uint8_t* block(int rank) const;
  Control control(int rank) const;

  int flags_;
  Tensor mine_, all_;  // u8: blocks of a Control and the flags
  int ranks_ = 1;      // in all_, since the last combine()
  std::vector<uint8_t> used_;
};

/// Compares a text over all ranks. SystemError(communication) on all of them when it differs,
/// showing the first line in which a rank differs from rank 0.
void expect_same_on_all_ranks(Communicator& comm, const std::string& text, const char* what);

}  // namespace lockstep::distributed
