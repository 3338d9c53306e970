#pragma once
#include <vector>

#include "apps/compare/claim.h"

namespace lockstep::apps {

struct SpeedUp {
  int ranks = 0;
  double gbit = 0;
  double times = 0;          ///< samples a second over one rank's
  double communicating = 0;  ///< exposed communication, share of the step
};
/// The rule of B0.
Verdict judge_speed_ups(const std::vector<SpeedUp>& grid);

}  // namespace lockstep::apps
