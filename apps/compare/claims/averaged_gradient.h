#pragma once
#include "apps/compare/claim.h"

namespace lockstep::apps {

/// The rule of B1a. `difference`: of the ranks' mean from the large batch's gradient, relative;
/// `exponent`: of the variance of the mean in the number of ranks.
Verdict judge_averaging(double difference, const Figure& exponent);

}  // namespace lockstep::apps
