#pragma once
#include <cstdint>
#include <string>

namespace lockstep::optim {

/// Learning rate as a pure function of the number of optimiser steps done, which skipped and empty
/// windows do not advance: linear warm-up, then constant, linear or cosine decay to a floor, which
/// holds for ever from step `total` on.
///
/// CONTRACT: update t (the first is 0) of a warm-up of W uses base·(t+1)/W, so the first update
/// already moves, with base/W, and update W - 1 and W use base. Warm-up may start below the floor.
/// A constant schedule has no end: `total` and `floor` do not matter.
struct Schedule {
  enum class Shape { constant, linear, cosine };
  Shape shape = Shape::constant;
  double base = 1e-3, floor = 0;
  int64_t warmup = 0, total = 0;

  /// Rate of update number `step` (0 for the first). Finite and >= 0 for every step >= 0.
  double at(int64_t step) const;
  /// UsageError unless 0 <= floor <= base, 0 <= warmup and, where it decays, warmup <= total and
  /// 1 <= total.
  void check_settings() const;
};
/// "constant", "linear", "cosine".
Schedule::Shape parse_schedule(const std::string& name);

}  // namespace lockstep::optim
