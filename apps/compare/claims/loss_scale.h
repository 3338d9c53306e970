#pragma once
#include <vector>

#include "apps/compare/claim.h"
#include "apps/compare/claims/fp16_wire.h"

namespace lockstep::apps {

/// Shares of gradients that became zero in fp16 and are not in fp32, on one seed.
struct Underflow {
  double unscaled = 0, scaled = 0;  ///< without a loss scale, with the dynamic one
};
/// The rule of B4b. `doses`: fixed loss scales 2^-shift, the smallest scale last.
Verdict judge_loss_scale(const std::vector<Underflow>& seeds, const std::vector<Dose>& doses);

}  // namespace lockstep::apps
