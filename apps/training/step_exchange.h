#pragma once
#include "distributed/sync_strategy.h"

namespace lockstep::apps {

/// What the ranks tell each other besides gradients: loss sums and their weights, for the report,
/// and whether somebody was asked to stop, so that all stop after the same step. Exact: sums are
/// formed in double, in rank order, on every rank. Takes no modelled time.
///
/// How much goes by what ranks agree on anyway (VerdictScope): under a shared verdict all of it, in
/// every step. Where each rank decides alone, its own figures are all it knows, and a signal is
/// agreed on when the ranks meet; where they meet seldom, in a message every kEvery steps that the
/// next one waits for, so that nobody waits unless others are that many steps behind. Ranks that
/// never meet tell each other nothing.
class StepExchange {
 public:
  static constexpr int64_t kEvery = 32;  ///< steps between messages within a round

  StepExchange(distributed::Communicator& comm, const distributed::SyncStrategy& strategy);

  /// Between finish_backward and finish_step: starts the exchange, which travels while the step
  /// ends.
  void post(double loss_sum, int64_t tokens, int signal);
  struct Result {
    double loss_sum = 0;  ///< of all ranks, or of this one
    int64_t tokens = 0;   ///< of the same; 0: none of them had data
    int signal = 0;       ///< to end after this step: the first one any rank got; 0: none
  };
  Result wait();

 private:
  Result receive();

  distributed::Communicator& comm_;
  const distributed::SyncStrategy& strategy_;
  Tensor mine_, all_;  // i64: the bits of the loss sum, tokens, signal; a row a rank
  distributed::WorkPtr work_;
  distributed::VerdictScope scope_;  // of the step
  Result result_;                    // of the step, as far as it is known
  int64_t silent_ = 0;               // steps since the last message
};

}  // namespace lockstep::apps
