#include "optim/grad_scaler.h"

#include "autograd/ops.h"

#include <algorithm>
#include <cmath>

namespace lockstep::optim {
namespace {

void expect_power_of_two(std::string_view name, double x) {
  int exponent;
  check(std::isfinite(x) && std::frexp(x, &exponent) == 0.5,
        "[optim.grad_scaler] {}; expected a power of two, got {}", name, x);
}

// The least power of two that is at least x > 0.
double power_of_two_above(double x) {
  int exponent;
  const double mantissa = std::frexp(x, &exponent);
  return std::ldexp(1.0, mantissa == 0.5 ? exponent - 1 : exponent);
}

}  // namespace

GradScaler::GradScaler(double scale, double nominal_weight)
    : GradScaler(
          GradScalerOptions{.scale = scale, .dynamic = false, .nominal_weight = nominal_weight}) {}

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(options.scale) {
  const GradScalerOptions& o = options_;
  check(std::isfinite(o.nominal_weight) && o.nominal_weight > 0,
        "[optim.grad_scaler] nominal weight; expected more than 0, got {}", o.nominal_weight);
  divisor_ = power_of_two_above(o.nominal_weight);
  check(o.max_skips >= 1, "[optim.grad_scaler] most skips; expected at least 1, got {}",
        o.max_skips);
  check_scale(o.scale);
  if (!o.dynamic) return;
  check_scale(o.min);
  check_scale(o.max);
  check(o.min <= o.scale && o.scale <= o.max,
        "[optim.grad_scaler] scale; expected {} to {}, got {}", o.min, o.max, o.scale);
  expect_power_of_two("growth", o.growth);
  expect_power_of_two("back-off", o.backoff);
  check(o.growth > 1, "[optim.grad_scaler] growth; expected more than 1, got {}", o.growth);
  check(o.backoff < 1, "[optim.grad_scaler] back-off; expected less than 1, got {}", o.backoff);
  check(o.interval >= 1, "[optim.grad_scaler] interval; expected at least 1 step, got {}",
        o.interval);
}

void GradScaler::check_scale(double scale) const {
  expect_power_of_two("scale", scale);
  check(std::isnormal(static_cast<float>(scale / divisor_)),
        "[optim.grad_scaler] scale {} over weight {} does not fit in f32", scale,
        options_.nominal_weight);
}

Tensor GradScaler::scale(const Tensor& loss) const {
  const double factor = scale();
  return factor == 1 ? loss : ops::scale(loss, static_cast<float>(factor));
}

void GradScaler::update(const StepVerdict& verdict) {
  if (verdict.finite && !verdict.apply) return;
  const GradScalerOptions& o = options_;
  skips_ = verdict.finite ? 0 : skips_ + 1;
  if (!o.dynamic) return;
  if (!verdict.finite) {
    scale_ = std::max(scale_ * o.backoff, o.min);
    applied_ = 0;
  } else if (++applied_ >= o.interval) {
    scale_ = std::min(scale_ * o.growth, o.max);
    applied_ = 0;
  }
}

void GradScaler::state(StateIo& io) {
  io.value("scale", scale_, Fold::replicated);
  io.value("applied", applied_, Fold::replicated);
  io.value("skips", skips_, Fold::replicated);
  check_scale(scale_);  // what was loaded
}

}  // namespace lockstep::optim
