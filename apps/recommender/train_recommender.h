#pragma once
#include "apps/recommender/recommender_options.h"
#include "apps/training/train_result.h"

namespace lockstep::apps {

/// Trains with resolved options and writes the run's directory. SystemError(numeric) when the loss
/// or a gradient is not finite.
TrainResult train_recommender(const RecommenderOptions& options, const ClickData& data,
                              const nlohmann::ordered_json& config);

}  // namespace lockstep::apps
