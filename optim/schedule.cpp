#include "optim/schedule.h"

#include "core/check.h"

#include <cmath>
#include <numbers>

namespace lockstep::optim {

double Schedule::at(int64_t step) const {
  check(step >= 0, "[optim.schedule] step; expected at least 0, got {}", step);
  if (shape != Shape::constant && step >= total) return floor;
  if (step < warmup) return base * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (shape == Shape::constant) return base;
  // Here warmup <= step < total, so nothing is divided by 0.
  const double done = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  const double left =
      shape == Shape::linear ? 1 - done : (1 + std::cos(std::numbers::pi * done)) / 2;
  return floor + (base - floor) * left;
}

void Schedule::check_settings() const {
  check(std::isfinite(base) && base >= 0, "[optim.schedule] rate; expected at least 0, got {}",
        base);
  check(warmup >= 0, "[optim.schedule] warm-up; expected at least 0 steps, got {}", warmup);
  if (shape == Shape::constant) return;
  check(floor >= 0 && floor <= base, "[optim.schedule] floor; expected 0..{}, got {}", base, floor);
  check(total >= 1, "[optim.schedule] steps in all; expected at least 1, got {}", total);
  check(warmup <= total, "[optim.schedule] warm-up; expected at most the {} steps in all, got {}",
        total, warmup);
}

Schedule::Shape parse_schedule(const std::string& name) {
  if (name == "constant") return Schedule::Shape::constant;
  if (name == "linear") return Schedule::Shape::linear;
  check(name == "cosine", "[optim.schedule] expected constant, linear or cosine, got '{}'", name);
  return Schedule::Shape::cosine;
}

}  // namespace lockstep::optim
