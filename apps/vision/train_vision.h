#pragma once
#include "apps/training/workload.h"
#include "apps/vision/vision_options.h"

namespace lockstep::apps {

/// What training a residual net with resolved options is. Options and data must outlive it.
Training vision_training(const VisionOptions& options, const ImageData& data,
                         nlohmann::ordered_json config);

}  // namespace lockstep::apps
