#pragma once
#include "apps/compare/claim.h"
#include "apps/compare/statistics/paired.h"

namespace lockstep::apps {

/// k micro-batches against one large batch.
struct MicroBatches {
  double gradient = 0;          ///< relative L2 difference of the whole gradient
  double worst_tensor = 0;      ///< of the parameter that differs most
  statistics::PairedTest loss;  ///< trained by k micro-batches, over trained by the large batch
  double memory = 0;            ///< activations of k micro-batches over those of the large batch
};
/// The rule of A1a.
Verdict judge_micro_batches(const MicroBatches& m);

}  // namespace lockstep::apps
