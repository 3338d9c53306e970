#pragma once
#include <cstdint>
#include <string>

namespace lockstep::optim {

/// Learning rate as a pure function of the number of optimiser steps done: linear warm-up, then
/// constant, linear or cosine decay to a floor, which holds for ever after `total`.
struct Schedule {
  enum class Shape { constant, linear, cosine };
  Shape shape = Shape::constant;
  double base = 1e-3, floor = 0;
  int64_t warmup = 0, total = 0;

  /// Rate of update number `step` (0 for the first). CONTRACT: see schedule.cpp for the first update.
  double at(int64_t step) const;
};
Schedule::Shape parse_schedule(const std::string& name);

}  // namespace lockstep::optim
