#pragma once
#include <vector>

#include "apps/compare/claim.h"
#include "apps/compare/statistics/paired.h"

namespace lockstep::apps {

/// What a code of eight bits does beside an fp16 wire.
struct Fp8Code {
  const char* name = "";
  double bytes = 0;             ///< a rank and step, over those of an fp16 wire
  statistics::PairedTest loss;  ///< over that of an fp16 wire
};
/// The rule of A4d.
Verdict judge_fp8(const std::vector<Fp8Code>& codes);

}  // namespace lockstep::apps
