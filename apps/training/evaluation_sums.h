#pragma once
#include "core/tensor.h"
#include "distributed/comm/communicator.h"

namespace lockstep::apps {

/// What ranks add up of an evaluation that counts right answers.
struct EvaluationSums {
  double loss = 0;
  int64_t right = 0, count = 0;
  int signal = 0;  ///< the first one that any rank got

  /// Adds Σ cross-entropy and right answers of logits [N, C] against labels i32 [N].
  void add(const Tensor& logits, const Tensor& labels);
};

/// Everybody's in rank order, the same on all of them; in no modelled time. Without `comm`: these.
EvaluationSums over_ranks(const EvaluationSums& mine, distributed::Communicator* comm);

}  // namespace lockstep::apps
