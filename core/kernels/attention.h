#pragma once
#include "core/dispatch.h"

namespace lockstep::kernel {

struct AttentionOptions {
  int heads = 1;
  bool causal = true;
  Tensor lengths;  ///< i32 [B]: keys at or beyond it are masked, queries there give zeros;
                   ///< undefined: all T
};

/// Scaled dot-product attention on packed qkv[B, T, 3C] (q, k, v one after the other, each
/// heads × C/heads) into out[B, T, C]; no split or merge. scale = 1/sqrt(C/heads). A query that
/// sees no key gives 0 and passes no gradient. lse[B, heads, T] is written for the backward.
/// qkv, out and their gradients are f32, f16 or bf16, each its own type; lse is f32, and so is all
/// arithmetic: a head at a time is widened, and its results are rounded once.
inline constinit Kernel<void(const Tensor& out, const Tensor& lse, const Tensor& qkv,
                             const AttentionOptions&)>
    attention{"attention"};
/// dqkv[B, T, 3C] is overwritten. May recompute probabilities from lse.
inline constinit Kernel<void(const Tensor& dqkv, const Tensor& dout, const Tensor& qkv,
                             const Tensor& out, const Tensor& lse, const AttentionOptions&)>
    attention_backward{"attention_backward"};

}  // namespace lockstep::kernel
