#pragma once
#include "core/dispatch.h"

/// Reductions of f32, f16 or bf16; results may be of any of these types too. Sums run in an order
/// fixed by the size and the thread budget and accumulate in double across blocks, so that long
/// sums neither stall nor drift, and are rounded once to f32, then to the type of the result.
namespace lockstep::kernel {

/// out[0] = Σ x
inline constinit Kernel<void(const Tensor& out, const Tensor& x)> sum{"sum"};
/// out[c] = Σ_n x[n, c] for x[N, C]: the gradient of a bias. Overwrites.
inline constinit Kernel<void(const Tensor& out, const Tensor& x)> column_sum{"column_sum"};
/// Σ x² in double; finite for every finite input.
inline constinit Kernel<double(const Tensor& x)> sum_of_squares{"sum_of_squares"};
/// Index of the first element that is NaN or infinite; -1 when all are finite.
inline constinit Kernel<int64_t(const Tensor& x)> first_non_finite{"first_non_finite"};
/// out[n] (i64) = index of the largest of x[n, :], the first among equals.
inline constinit Kernel<void(const Tensor& out, const Tensor& x)> argmax{"argmax"};

}  // namespace lockstep::kernel
