#pragma once
#include "apps/training/workload.h"
#include "apps/transformer/language_data.h"
#include "apps/transformer/train_options.h"

namespace lockstep::apps {

/// What training a GPT with resolved options is. Options and data must outlive it.
Training transformer_training(const TrainOptions& options, const LanguageData& data,
                              nlohmann::ordered_json config);

}  // namespace lockstep::apps
