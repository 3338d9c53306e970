#pragma once
#include <cmath>

namespace lockstep::data {

/// ln(1 + e^x), exact to rounding for any x: 0 at -inf, inf at inf, never negative.
inline double softplus(double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

/// 1 / (1 + e^-x).
inline double sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return (x >= 0 ? 1.0 : e) / (1 + e);
}

/// -ln of the probability that a logit gives its label, 0 or 1 (labels in between: the expectation,
/// for a finite logit). From the logit, in double and without clipping: what a logit of 20 costs
/// when the label is 0 is 20, which a probability in f32 no longer knows. Never negative; NaN only
/// for a NaN.
inline double log_loss(double logit, double label) {
  if (label == 1) return softplus(-logit);
  if (label == 0) return softplus(logit);
  return label * softplus(-logit) + (1 - label) * softplus(logit);
}

}  // namespace lockstep::data
