#pragma once
#include "apps/compare/claim.h"

namespace lockstep::apps {

/// What 8 cards exchange of 7 billion fp32 gradients, in GB, and how far bytes counted at a small
/// scale are from the model that says so.
struct GradientTraffic {
  double gradients = 0;                    ///< of one card
  double ring_card = 0, ring_all = 0;      ///< sent by one, by all
  double direct_card = 0, direct_all = 0;  ///< every card sends its gradients to every other
  double once = 0;                         ///< every card sends them once, to anybody
  double counted_over_model = 1;           ///< bytes of a rank and step
};
GradientTraffic traffic_of_7b(double counted_over_model);
/// The rule of A2a.
Verdict judge_traffic(const GradientTraffic& traffic);

}  // namespace lockstep::apps
