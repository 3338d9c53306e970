#pragma once
#include <string>
#include <vector>

#include "apps/compare/claim.h"

namespace lockstep::apps {

/// A modelled cluster under both strategies.
struct NoWaiting {
  std::string cluster;
  double speed = 0;                              ///< gradients a second, async over sync
  double utilisation = 0, utilisation_sync = 0;  ///< mean share of time that ranks compute
};
/// The rule of A3a.
Judgement judge_no_waiting(const std::vector<NoWaiting>& clusters);

}  // namespace lockstep::apps
