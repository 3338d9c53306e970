#pragma once
#include "apps/training/train_result.h"
#include "apps/training/workload.h"

namespace lockstep::apps {

/// Trains on all ranks and writes the run's directory. SystemError(numeric) when the loss or a
/// gradient is not finite, and `--on-divergence` has nothing to go back to.
TrainResult train(const Training& training);

}  // namespace lockstep::apps
