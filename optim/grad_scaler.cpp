#include "optim/grad_scaler.h"

#include "autograd/ops.h"

#include <cmath>

namespace lockstep::optim {
namespace {

bool is_power_of_two(double x) {
  int exponent;
  return std::isfinite(x) && std::frexp(x, &exponent) == 0.5;
}

// The least power of two that is at least x > 0.
double power_of_two_above(double x) {
  int exponent;
  const double mantissa = std::frexp(x, &exponent);
  return std::ldexp(1.0, mantissa == 0.5 ? exponent - 1 : exponent);
}

}  // namespace

GradScaler::GradScaler(double scale, double nominal_weight)
    : loss_scale_(scale), nominal_weight_(nominal_weight) {
  check(is_power_of_two(scale), "[optim.grad_scaler] scale; expected a power of two, got {}",
        scale);
  check(std::isfinite(nominal_weight) && nominal_weight > 0,
        "[optim.grad_scaler] nominal weight; expected more than 0, got {}", nominal_weight);
  scale_ = scale / power_of_two_above(nominal_weight);
  check(std::isnormal(static_cast<float>(scale_)),
        "[optim.grad_scaler] scale {} over weight {} does not fit in f32", scale, nominal_weight);
}

Tensor GradScaler::scale(const Tensor& loss) const {
  return scale_ == 1 ? loss : ops::scale(loss, static_cast<float>(scale_));
}

void GradScaler::update(const StepVerdict&) {}  // a fixed scale learns nothing

}  // namespace lockstep::optim
