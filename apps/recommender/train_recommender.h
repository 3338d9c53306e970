#pragma once
#include "apps/recommender/recommender_options.h"
#include "apps/training/workload.h"

namespace lockstep::apps {

/// What training a DLRM with resolved options is. Options and data must outlive it.
Training recommender_training(const RecommenderOptions& options, const ClickData& data,
                              nlohmann::ordered_json config);

}  // namespace lockstep::apps
