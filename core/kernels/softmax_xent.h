#pragma once
#include "core/dispatch.h"

/// Operands are f32, f16 or bf16, each its own type, but for losses and lse, which are f32;
/// arithmetic is f32, each result is rounded once when it is stored.
namespace lockstep::kernel {

/// Over the last dimension, with the row maximum taken away. An all-equal row gives 1/C whatever
/// its size; a row of -inf only gives zeros.
inline constinit Kernel<void(const Tensor& out, const Tensor& x)> softmax{"softmax"};
inline constinit Kernel<void(const Tensor& dx, const Tensor& dy, const Tensor& y)> softmax_backward{
    "softmax_backward"};

/// Softmax cross-entropy of logits[N, C] against targets[N] (i32 or i64). losses[N] = lse - logit
/// of the target, exactly 0 for an ignored row; lse[N] is kept for the backward. A target outside
/// [0, C) that is not `ignore` is a UsageError naming row and value, before anything is written.
inline constinit Kernel<void(const Tensor& losses, const Tensor& lse, const Tensor& logits,
                             const Tensor& targets, int64_t ignore)>
    softmax_cross_entropy{"softmax_cross_entropy"};
/// dlogits = (softmax - onehot) · dloss[0]; 0 in ignored rows. dloss has one element.
inline constinit Kernel<void(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                             const Tensor& lse, const Tensor& targets, int64_t ignore)>
    softmax_cross_entropy_backward{"softmax_cross_entropy_backward"};

/// Binary cross-entropy with logits: losses = max(x,0) - x·t + log1p(exp(-|x|)); targets floating,
/// in [0, 1].
inline constinit Kernel<void(const Tensor& losses, const Tensor& logits, const Tensor& targets)>
    bce_with_logits{"bce_with_logits"};
/// dlogits = (sigmoid(x) - t) · dloss[0]
inline constinit Kernel<void(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                             const Tensor& targets)>
    bce_with_logits_backward{"bce_with_logits_backward"};

}  // namespace lockstep::kernel
