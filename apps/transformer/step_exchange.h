#pragma once
#include "distributed/comm/communicator.h"

namespace lockstep::apps {

/// What the ranks tell each other once a step besides gradients: loss sums and their weights, for
/// the report, and whether somebody was asked to stop, so that all stop after the same step. Exact:
/// sums are formed in double, in rank order, on every rank.
class StepExchange {
 public:
  /// `this_rank`: ranks that do not wait for each other tell each other nothing; a rank's own
  /// figures are all there is.
  enum class Scope { all_ranks, this_rank };
  StepExchange(distributed::Communicator& comm, Scope scope);

  /// Starts the exchange; it travels while the step ends.
  void post(double loss_sum, int64_t tokens, int signal);
  struct Result {
    double loss_sum = 0;  ///< of all ranks
    int64_t tokens = 0;   ///< of all ranks
    int signal = 0;       ///< the first one any rank got; 0: none
  };
  Result wait();

 private:
  distributed::Communicator& comm_;
  int ranks_;
  Tensor mine_, all_;  // i64: the bits of the loss sum, tokens, signal; a row a rank
  distributed::WorkPtr work_;
};

}  // namespace lockstep::apps
