#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "apps/compare/claim.h"
#include "apps/compare/statistics/paired.h"

namespace lockstep::apps {

/// How jagged a validation curve is between two steps, both included: the standard deviation of its
/// first differences. NaN with fewer than three points there.
double jaggedness_between(const Points& curve, double first, double last);

/// Oscillation indices of top-0.1 % under one optimiser: jaggedness over the dense run's.
struct Oscillation {
  std::string optimizer;
  Figure early, late;          ///< without feedback, in steps 0 to 1,000 and 4,500 to 5,500
  Figure fed_early, fed_late;  ///< with it
};
/// The rule of A2d.
Judgement judge_oscillation(std::span<const Oscillation> optimizers);

/// The gap at step 1,000 without feedback, under one optimiser.
struct EarlyGap {
  std::string optimizer;
  statistics::PairedTest loss;  ///< over the dense run's, margin 0.02 nats
};
/// The rule of A2d-bias.
Judgement judge_early_gap(std::span<const EarlyGap> optimizers);

/// Seeds on which training with feedback diverged, at the learning rate of the dense run.
struct Divergences {
  int64_t momentum = 0, plain = 0, seeds = 0;
};
/// The rule of A2d-momentum.
Judgement judge_divergences(const Divergences& found);

}  // namespace lockstep::apps
