#pragma once
#include <vector>

#include "apps/compare/claim.h"
#include "apps/compare/statistics/paired.h"

namespace lockstep::apps {

/// Share of gradients that are zero on the wire, over all probes of the arm at all seeds.
double zeros_of(const RunRequest& arm, const Setting& setting, Results& results);

/// Gradients that crossed an fp16 wire 2^-shift times as large as they are.
struct Dose {
  int shift = 0;
  double zeros = 0;             ///< share of elements that are 0 after the cast
  statistics::PairedTest loss;  ///< over that of an fp32 wire
};
/// Whether zeros tell harm: reproduced where some dose is beyond the margin and each such makes
/// more zeros than any that is equivalent, in part where zeros do not tell them apart, not where
/// none is beyond it. The last dose is the largest.
Judgement judge_zeros(const std::vector<Dose>& doses);
/// The rule of B4a. `doses` in the order of shifts, 0 first.
Verdict judge_fp16_wire(const std::vector<Dose>& doses);

}  // namespace lockstep::apps
