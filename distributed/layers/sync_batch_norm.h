#pragma once
#include <memory>
#include <vector>

#include "autograd/moment_exchange.h"
#include "distributed/comm/communicator.h"
#include "layers/batch_norm.h"

namespace lockstep::distributed {

/// Batch normalisation over the batches of all ranks (SyncBN): counts, means and squared deviations
/// are gathered in one collective of forward and merged by count in rank order (Chan et al. 1983),
/// the two sums of backward are added in one collective. So n ranks give what one rank gives with
/// the whole batch, in any split of it; the running values are the same bits on all ranks.
///
/// A rank without samples must run forward and backward with an empty batch: the others wait for
/// it. So models whose ranks run out of batches at different times need empty batches at the end.
/// One object may serve all layers of a model, which call it in the program's order.
class MomentsOverRanks final : public autograd::MomentExchange {
 public:
  /// Communicates through a split of `comm`, inside forward and backward, so that it does not get
  /// between the collectives that are on their way there. A collective.
  explicit MomentsOverRanks(Communicator& comm);
  int64_t join(const Tensor& moments, int64_t count) override;
  void add(const Tensor& sums) override;
  CommStats stats() const { return comm_->stats(); }

 private:
  std::unique_ptr<Communicator> comm_;
  std::vector<int64_t> counts_;  // scratch, by rank
};

/// Makes every BatchNorm of a model a SyncBatchNorm, one that normalises over the ranks of `comm`;
/// parameters and buffers stay as they are. Returns how many. A collective where there is one.
int sync_batch_norms(layers::Module& module, Communicator& comm);
/// The way back.
int unsync_batch_norms(layers::Module& module);

}  // namespace lockstep::distributed
