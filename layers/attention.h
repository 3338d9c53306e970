#pragma once
#include "layers/linear.h"

namespace lockstep::layers {

struct AttentionOptions {
  int heads = 1;
  bool bias = true;
  WeightInit init = normal(0.02);
  /// Of the projection back into the residual stream; see residual_init().
  WeightInit projection_init = normal(0.02);
};

/// For projections that end a residual branch: with `layers` blocks of two branches each, variances
/// add up to that of one (Radford et al. 2019, GPT-2): sd / √(2 · layers).
WeightInit residual_init(WeightInit init, int64_t layers);

/// Causal multi-head self-attention (Vaswani et al. 2017, arXiv:1706.03762): x[B, T, C] to
/// [B, T, C]. Parameters "qkv.*" (C → 3C, q k v one after the other) and "proj.*".
class CausalSelfAttention final : public Module {
 public:
  CausalSelfAttention(Initialiser& init, int64_t width, const AttentionOptions& options);
  /// lengths (i32 [B], optional): keys at or beyond it are not seen, queries there give the
  /// projection of zeros.
  Tensor operator()(const Tensor& x, const Tensor& lengths = {}) const;

 private:
  int heads_;
  Linear qkv_, proj_;
};

}  // namespace lockstep::layers
