#pragma once
#include <span>

#include "core/dispatch.h"

/// Normalisation by channel (Ioffe & Szegedy 2015, arXiv:1502.03167) of x[N, C, L…]: a channel has
/// N·L values, [N, C] has L = 1. Forward is moments → statistics → apply, backward sums → apply;
/// whoever normalises over several ranks merges between the two steps of each. Operands are f32,
/// f16 or bf16, each its own type, but for moments, statistics, sums and running values, which are
/// f32; arithmetic is f32, each result is rounded once when it is stored. Bits do not depend on the
/// threads.
namespace lockstep::kernel {

/// moments[3, C]: centre, shift, M2. The mean is centre + shift, shift being what the rounding of
/// the mean lost; M2 = Σ (x - mean)². Two passes relative to a value of the channel, never
/// E[x²] - E[x]². All 0 where a channel has no values.
inline constinit Kernel<void(const Tensor& moments, const Tensor& x)> channel_moments{
    "channel_moments"};
/// The moments of all values from those of disjoint parts [P, 3, C], of counts[p] values a channel
/// each, merged in order in double (Chan et al. 1983). A part without values counts for nothing.
inline constinit Kernel<void(const Tensor& moments, const Tensor& parts,
                             std::span<const int64_t> counts)>
    merge_moments{"merge_moments"};
/// statistics[3, C]: centre, shift, 1 / √(M2 / count + eps): the biased variance.
inline constinit Kernel<void(const Tensor& statistics, const Tensor& moments, int64_t count,
                             float eps)>
    batch_statistics{"batch_statistics"};
/// The same of a known mean and variance [C].
inline constinit Kernel<void(const Tensor& statistics, const Tensor& mean, const Tensor& variance,
                             float eps)>
    fixed_statistics{"fixed_statistics"};
/// mean += weight · (batch mean - mean), variance likewise with M2 / (count - 1), the unbiased one.
/// A channel whose moments are not finite is left as it is, so that one overflowing batch does not
/// spoil the run. UsageError for a count below 2.
inline constinit Kernel<void(const Tensor& mean, const Tensor& variance, const Tensor& moments,
                             int64_t count, double weight)>
    update_running{"update_running"};

/// y = (x - mean) · rstd · gamma + beta; gamma, beta [C] may be undefined, each.
inline constinit Kernel<void(const Tensor& y, const Tensor& x, const Tensor& statistics,
                             const Tensor& gamma, const Tensor& beta)>
    batch_norm{"batch_norm"};
/// y = max(0, batch_norm + addend), in one pass; addend, of y's shape, may be undefined.
inline constinit Kernel<void(const Tensor& y, const Tensor& x, const Tensor& statistics,
                             const Tensor& gamma, const Tensor& beta, const Tensor& addend)>
    batch_norm_relu{"batch_norm_relu"};
/// sums[2, C]: Σ dy and Σ dy · x̂, the gradients of beta and gamma.
inline constinit Kernel<void(const Tensor& sums, const Tensor& dy, const Tensor& x,
                             const Tensor& statistics)>
    batch_norm_backward_sums{"batch_norm_backward_sums"};
/// dx = gamma · rstd · (dy - sums[0] / count - x̂ · sums[1] / count), where sums and count are those
/// of all values that the statistics are of. Undefined sums: the statistics are constants, and dx =
/// gamma · rstd · dy.
inline constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& x,
                             const Tensor& statistics, const Tensor& gamma, const Tensor& sums,
                             int64_t count)>
    batch_norm_backward{"batch_norm_backward"};

/// The same two of batch_norm_relu without an addend, from the gradient dy of what it gives.
inline constinit Kernel<void(const Tensor& sums, const Tensor& dy, const Tensor& x,
                             const Tensor& statistics, const Tensor& gamma, const Tensor& beta)>
    batch_norm_relu_backward_sums{"batch_norm_relu_backward_sums"};
inline constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& x,
                             const Tensor& statistics, const Tensor& gamma, const Tensor& beta,
                             const Tensor& sums, int64_t count)>
    batch_norm_relu_backward{"batch_norm_relu_backward"};
/// With an addend: `through` is dy where y is more than 0, else 0: the gradient of the addend, and
/// what batch_norm_backward goes on with. sums are those of `through`.
inline constinit Kernel<void(const Tensor& sums, const Tensor& through, const Tensor& dy,
                             const Tensor& y, const Tensor& x, const Tensor& statistics)>
    batch_norm_add_relu_backward_sums{"batch_norm_add_relu_backward_sums"};

}  // namespace lockstep::kernel
