#pragma once
#include <vector>

#include "apps/compare/claim.h"

namespace lockstep::apps {

/// What many codes of the same numbers x tell of a code.
struct CodeMoments {
  /// Largest deviation of an element's mean from the element, in standard errors; over elements
  /// that were rounded both ways at least ten times, so that the normal law holds.
  double element_sigmas = 0;
  double along_sigmas = 0;  ///< the same of Σ x·mean: what shrinks or grows shows here
  double variance_over_theory = 0;
  double relative_variance = 0;  ///< E‖decoded - x‖² / ‖x‖², bias included
  double relative_bias = 0;      ///< ‖mean - x‖² / ‖x‖²
};

/// Of `trials` codes of one block; `step`: the distance between two levels of a stochastic code
/// over the largest magnitude, 0 for one that has no theory here.
CodeMoments moments_of(const std::string& code, const std::vector<float>& x, int64_t trials,
                       double step);

/// The rule of A2e.
Verdict judge_unbiased(const std::vector<CodeMoments>& codes);

}  // namespace lockstep::apps
