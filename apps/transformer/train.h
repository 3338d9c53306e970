#pragma once
#include "apps/training/train_result.h"
#include "apps/transformer/language_data.h"
#include "apps/transformer/train_options.h"

namespace lockstep::apps {

/// Trains with resolved options and writes the run's directory. SystemError(numeric) when the loss
/// or a gradient is not finite.
TrainResult train_transformer(const TrainOptions& options, const LanguageData& data,
                              const nlohmann::ordered_json& config);

}  // namespace lockstep::apps
