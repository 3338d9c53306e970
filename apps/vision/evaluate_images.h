#pragma once
#include "apps/training/evaluation_sums.h"
#include "apps/vision/residual_net.h"
#include "data/images.h"

namespace lockstep::apps {

/// Goes once through the first `count` held-out images, `rows` at a time, every one exactly once
/// over all ranks; the same sums on all of them. Without `comm`: on this rank alone. A signal to
/// any rank ends it early. Normalises by running statistics, records nothing, takes no modelled
/// time and leaves the model in training mode.
EvaluationSums evaluate_images(ResidualNet& model, const data::ImageDataset& source, int64_t count,
                               int64_t rows, distributed::Communicator* comm);

}  // namespace lockstep::apps
