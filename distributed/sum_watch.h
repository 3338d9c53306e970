#pragma once
#include "distributed/observer.h"

namespace lockstep::distributed {

/// What an exchange shares with its sums on their way.
struct SumWatch {
  bool overflowed = false;               ///< one that has finished was not finite
  GradientObserver* observer = nullptr;  ///< null: nobody looks
};

}  // namespace lockstep::distributed
