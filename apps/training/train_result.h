#pragma once
#include <nlohmann/json.hpp>

#include <string>

namespace lockstep::apps {

/// What a run leaves to be shown.
struct TrainResult {
  nlohmann::ordered_json summary;  ///< as in summary.json
  std::string directory;
  std::string evaluation;   ///< what the last evaluation found, in a line; empty: nothing to add
  std::string probe;        ///< what the last probe saw, in lines; empty: none
  std::string profile;      ///< where rank 0's steps went, in lines; empty: --profile was not given
  std::string sync;         ///< what the strategy has to tell, in lines; empty: nothing
  std::string compression;  ///< what compression did, in lines; empty: there was none
  std::string cluster;  ///< what a modelled cluster's time went into, in lines; empty: real time
  int exit_code = 0;    ///< 0, or 130 / 143 when a signal ended the run early
};

}  // namespace lockstep::apps
