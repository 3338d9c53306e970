#pragma once
#include "core/dispatch.h"

namespace lockstep::kernel {

/// Operands are f32, f16 or bf16, each its own type, but for mean and rstd, which are f32;
/// arithmetic is f32, each result is rounded once when it is stored.

/// Layer normalisation over the last dimension C of x[N, C] (Ba et al. 2016): two passes or
/// Welford, never E[x²] - E[x]². out = (x - mean) · rstd · gamma + beta; gamma, beta [C], beta may
/// be undefined. mean, rstd [N] are written for the backward.
inline constinit Kernel<void(const Tensor& out, const Tensor& mean, const Tensor& rstd,
                             const Tensor& x, const Tensor& gamma, const Tensor& beta, float eps)>
    layer_norm{"layer_norm"};
/// sum = x + residual, out = layer_norm(sum): one pass. Where `sum` is f16 or bf16, out and the
/// statistics are of the sum before it is rounded.
inline constinit Kernel<void(const Tensor& out, const Tensor& sum, const Tensor& mean,
                             const Tensor& rstd, const Tensor& x, const Tensor& residual,
                             const Tensor& gamma, const Tensor& beta, float eps)>
    residual_layer_norm{"residual_layer_norm"};
/// dx = gradient through the normalisation (+ dsum where defined: what arrives at the sum itself).
/// dgamma, dbeta [C] are overwritten (summed in double across blocks of rows); dbeta may be
/// undefined. x is the normalised input (or sum).
inline constinit Kernel<void(const Tensor& dx, const Tensor& dgamma, const Tensor& dbeta,
                             const Tensor& dy, const Tensor& dsum, const Tensor& x,
                             const Tensor& mean, const Tensor& rstd, const Tensor& gamma)>
    layer_norm_backward{"layer_norm_backward"};

}  // namespace lockstep::kernel
