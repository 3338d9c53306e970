#pragma once
#include "core/dispatch.h"

namespace lockstep::kernel {

/// How many elements have which magnitude: counts[e] of the finite non-zero x whose f32 exponent
/// field is e, that is |x| in [2^(e-127), 2^(e-126)) (0: below 2^-126); then infinities, NaN, zeros.
inline constexpr int64_t kInfinities = 255, kNans = 256, kZeros = 257, kMagnitudes = 258;

/// counts (i64 [kMagnitudes]) += those of x (floating; f16 and bf16 by their exact values).
inline constinit Kernel<void(const Tensor& counts, const Tensor& x)> count_magnitudes{
    "count_magnitudes"};

}  // namespace lockstep::kernel
