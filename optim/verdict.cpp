#include "optim/verdict.h"

#include <cmath>

namespace lockstep::optim {

void StepVerdict::clip(double norm, double max_norm) {
  check(max_norm > 0, "[optim.clip] largest norm; expected more than 0, got {}", max_norm);
  if (!std::isfinite(norm)) {
    finite = apply = false;
    return;
  }
  if (norm > max_norm) factor = static_cast<float>(factor * (max_norm / norm));
}

}  // namespace lockstep::optim
