#pragma once
#include "core/dispatch.h"

/// The dot interaction of DLRM (Naumov et al. 2019, arXiv:1906.00091), f32.
namespace lockstep::kernel {

/// Columns that N vectors of width D give: D + N·(N-1)/2. UsageError for N or D below 1.
int64_t interaction_width(int64_t vectors, int64_t width);

/// For x [B, N, D]: out[b] = x[b, 0, :], then the products x[b, i, :] · x[b, j, :] of all pairs
/// j < i, ordered by i, then j: the strictly lower triangle of X·Xᵀ, row by row. out [B,
/// interaction_width(N, D)].
inline constinit Kernel<void(const Tensor& out, const Tensor& x)> dot_interaction{
    "dot_interaction"};
/// dx[b, i, :] = Σ_j dout of the pair {i, j} · x[b, j, :], and for i = 0 what arrives at its copy.
inline constinit Kernel<void(const Tensor& dx, const Tensor& dout, const Tensor& x)>
    dot_interaction_backward{"dot_interaction_backward"};

}  // namespace lockstep::kernel
