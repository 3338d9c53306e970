#pragma once
#include "apps/compare/claim.h"
#include "apps/compare/statistics/paired.h"

namespace lockstep::apps {

/// What a split of the batch does under one kind of normalisation, beside the large batch.
struct NormSplit {
  double first_losses = 0;  ///< largest difference of a training loss in ten steps of plain SGD
  statistics::PairedTest accuracy;  ///< points, split - large batch, margin 0.5
};
/// The rule of B3b, for batch statistics, SyncBN and frozen ones, each split over time.
Judgement judge_norm_splits(const NormSplit& batch, const NormSplit& sync, const NormSplit& frozen);

}  // namespace lockstep::apps
