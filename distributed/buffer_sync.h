#pragma once
#include <vector>

#include "distributed/comm/communicator.h"
#include "layers/module.h"

namespace lockstep::distributed {

/// The rule by which buffers (running statistics) are made equal over ranks. CONTRACT: an f32
/// buffer becomes the average over ranks, each rank counting once, added in rank order in double;
/// an i64 one, which counts, becomes the largest. Running statistics are linear in the batches, so
/// the average over ranks is what one rank would hold that had seen the average of their batches'
/// statistics, and going on from it is the same as going on apart and averaging later. Better than
/// rank 0's alone, which knows a share of the data only. Under SyncBN the ranks agree anyway.
///
/// While training, every rank keeps its own; they are made equal for evaluation and for what is
/// saved (Reducer::evaluating), and for good before statistics are frozen.
class BufferSync {
 public:
  /// All ranks compare names and shapes: SystemError(communication) on all of them, showing the
  /// first difference. Everything passed must outlive this.
  BufferSync(std::vector<layers::Buffer> buffers, Communicator& comm);

  /// For good: before statistics are frozen. A collective, as the next one.
  void make_equal();
  /// The same until after_evaluation(), which puts this rank's own back without communicating.
  void before_evaluation();
  void after_evaluation();

 private:
  std::vector<layers::Buffer> buffers_;
  Communicator& comm_;
  int64_t bytes_ = 0;
  Tensor own_;  // the bytes of this rank's, one after the other
};

}  // namespace lockstep::distributed
