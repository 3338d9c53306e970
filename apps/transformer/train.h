#pragma once
#include <nlohmann/json.hpp>

#include "apps/transformer/language_data.h"
#include "apps/transformer/train_options.h"

namespace lockstep::apps {

struct TrainResult {
  nlohmann::ordered_json summary;  ///< as in summary.json
  std::string directory;
  std::string probe;    ///< what the last probe saw, in lines; empty: none
  std::string profile;  ///< where rank 0's steps went, in lines; empty: --profile was not given
  std::string sync;     ///< what the strategy has to tell, in lines; empty: nothing
  std::string cluster;  ///< what a modelled cluster's time went into, in lines; empty: real time
  int exit_code = 0;    ///< 0, or 130 / 143 when a signal ended the run early
};

/// Trains with resolved options and writes the run's directory. SystemError(numeric) when the loss
/// or a gradient is not finite.
TrainResult train_transformer(const TrainOptions& options, const LanguageData& data,
                              const nlohmann::ordered_json& config);

}  // namespace lockstep::apps
