#pragma once
#include <span>

#include "core/dispatch.h"

/// Choosing elements by magnitude. All NaN have one magnitude, above infinity: a gradient that has
/// gone wrong is sent first, and shows. Among equal magnitudes the lowest index comes first.
/// Results do not depend on the threads nor on the instruction set.
namespace lockstep::kernel {

/// The k = indices.numel() elements of largest magnitude, exactly, in the order of their indices:
/// indices (i32) of the flattened x and values (f32, signs kept), as many. x f32 of k to 2^31 - 1
/// elements.
inline constinit Kernel<void(const Tensor& indices, const Tensor& values, const Tensor& x)> top_k{
    "top_k"};

/// The elements with |x| >= threshold (at least 0), NaN among them, in the order of their indices,
/// as far as there is room for them. Returns how many there are, which may be more; what lies
/// behind them is not written. Types as of top_k.
inline constinit Kernel<int64_t(const Tensor& indices, const Tensor& values, const Tensor& x,
                                float threshold)>
    select_above{"select_above"};

/// An estimate of the k-th largest magnitude, 1 <= k <= x.numel(), from `samples` elements at
/// places that depend on the size only; exact from all of them. The rank of the estimate has a
/// standard deviation of at most sqrt(k · numel / samples). Never NaN: infinity stands for it.
inline constinit Kernel<float(const Tensor& x, int64_t k, int64_t samples)> sample_threshold{
    "sample_threshold"};

// The same of host memory.

void top_k_of(std::span<int32_t> indices, std::span<float> values, std::span<const float> x);
int64_t select_above_of(std::span<int32_t> indices, std::span<float> values,
                        std::span<const float> x, float threshold);
float sample_threshold_of(std::span<const float> x, int64_t k, int64_t samples);

/// top_k of sum[i] = factor · x[i] + residual[i], which is written in the pass that chooses; `sum`
/// may be `residual`. Products and sums are rounded one by one.
void top_k_of_sum(std::span<int32_t> indices, std::span<float> values, std::span<float> sum,
                  std::span<const float> x, float factor, std::span<const float> residual);

}  // namespace lockstep::kernel
