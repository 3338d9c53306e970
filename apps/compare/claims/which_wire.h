#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "apps/compare/claim.h"
#include "apps/compare/statistics/paired.h"

namespace lockstep::apps {

/// An fp16 wire with a dynamic loss scale beside an fp32 one, on some ranks.
struct WireAtRanks {
  int64_t ranks = 0;
  statistics::PairedTest loss;  ///< over that of an fp32 wire
  std::vector<double> times;    ///< modelled step time over an fp32 wire's, by bandwidth
};
/// The rule of AB1. `bandwidths` names those of `times`.
Verdict judge_which_wire(const std::vector<WireAtRanks>& all,
                         const std::vector<std::string>& bandwidths);

}  // namespace lockstep::apps
