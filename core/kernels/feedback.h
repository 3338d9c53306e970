#pragma once
#include <span>

/// What compressors make their input of, on host memory. Each is one pass. Results do not depend on
/// the threads nor on the instruction set; products and sums are rounded one by one.
namespace lockstep::kernel {

/// sum[i] = factor · values[i] + residual[i]. `sum` may be either input. Returns the largest
/// magnitude of the sums; where one is NaN or infinite, that.
float add_feedback(std::span<float> sum, std::span<const float> values, float factor,
                   std::span<const float> residual);

/// Momentum correction (Lin et al. 2018, arXiv:1712.01887, equation 4):
/// next_velocity[i] = momentum · velocity[i] + factor · values[i];
/// sum[i] = residual[i] + next_velocity[i]. Outputs may be the inputs of their place. Returns as
/// above.
struct Momentum {
  float momentum = 0;
  std::span<const float> velocity;
  std::span<float> next_velocity;
};
float add_feedback_with_momentum(std::span<float> sum, std::span<const float> values, float factor,
                                 std::span<const float> residual, const Momentum& momentum);

/// The largest magnitude; NaN or infinity where there is one; 0 of nothing.
float largest_magnitude(std::span<const float> x);

/// Σ x² in double.
double squares_of(std::span<const float> x);

}  // namespace lockstep::kernel
