#pragma once
#include "apps/compare/claim.h"
#include "apps/compare/statistics/paired.h"

namespace lockstep::apps {

/// What a mistake in reducing does.
struct Mistake {
  double factor = 0;  ///< the gradient's, over the right one's
  statistics::BySeed losses;
};
/// The rule of A1c. `mixed`: reduced after every micro-batch; `undivided`: once, but not divided.
Verdict judge_counted_twice(const statistics::BySeed& right, const Mistake& mixed,
                            const Mistake& undivided);

}  // namespace lockstep::apps
