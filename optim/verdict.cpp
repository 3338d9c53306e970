#include "optim/verdict.h"

#include <cmath>

namespace lockstep::optim {

void StepVerdict::clip(double norm, double largest) {
  check(largest > 0, "[optim.clip] largest norm; expected more than 0, got {}", largest);
  max_norm = largest;
  mean_factor = factor;
  if (!std::isfinite(norm)) {
    finite = apply = false;
    return;
  }
  if (norm > largest) factor = static_cast<float>(factor * (largest / norm));
}

}  // namespace lockstep::optim
