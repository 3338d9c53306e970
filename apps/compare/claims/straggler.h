#pragma once
#include "apps/compare/claim.h"

namespace lockstep::apps {

/// The rule of B1b, on how many times as long steps take.
Verdict judge_straggler(const Figure& measured_ratio);

}  // namespace lockstep::apps
