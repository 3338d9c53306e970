#pragma once
#include <cmath>
#include <vector>

#include "core/kernels/attention.h"
#include "core/kernels/norm.h"
#include "core/kernels/reduce.h"
#include "core/kernels/softmax_xent.h"

/// Kernels called with outputs made for them, filled with NaN first so that nothing goes unwritten.
namespace lockstep::test {

constexpr int64_t kNoIgnore = -100;

struct Normed {
  Tensor out, mean, rstd;
};
inline Normed layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                         float eps = 1e-5f) {
  const int64_t rows = x.shape().rows();
  const Normed n{full(x.shape(), NAN), full({rows}, NAN), full({rows}, NAN)};
  kernel::layer_norm(n.out, n.mean, n.rstd, x, gamma, beta, eps);
  return n;
}

/// Forward, and backward with a gradient of 1.
struct Entropy {
  Tensor losses, lse, dlogits;
};
inline Entropy cross_entropy(const Tensor& logits, const Tensor& targets,
                             int64_t ignore = kNoIgnore) {
  const Entropy e{full({logits.size(0)}, NAN), full({logits.size(0)}, NAN),
                  full(logits.shape(), NAN)};
  kernel::softmax_cross_entropy(e.losses, e.lse, logits, targets, ignore);
  kernel::softmax_cross_entropy_backward(e.dlogits, full({1}, 1), logits, e.lse, targets, ignore);
  return e;
}

struct AttentionPasses {
  Tensor out, lse, dqkv;
};
inline AttentionPasses attention(const Tensor& qkv, const Tensor& dout,
                                 const kernel::AttentionOptions& options) {
  const AttentionPasses r{full(dout.shape(), NAN),
                          full({qkv.size(0), options.heads, qkv.size(1)}, NAN),
                          full(qkv.shape(), NAN)};
  kernel::attention(r.out, r.lse, qkv, options);
  kernel::attention_backward(r.dqkv, dout, qkv, r.out, r.lse, options);
  return r;
}

}  // namespace lockstep::test
