#include "core/kernels/attention.h"

#include "autograd/ops/helpers.h"

namespace lockstep::ops {
namespace {

struct Attention final : Node {
  Saved qkv, out, lse, lengths;  // qkv as it was multiplied: in C
  int heads = 1;
  bool causal = true;
  std::string_view name() const override { return "attention"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dqkv = gradient_for(0, qkv);
    kernel::attention_backward(dqkv, dy[0], qkv, out, lse,
                               {.heads = heads,
                                .causal = causal,
                                .lengths = lengths.defined() ? lengths.get() : Tensor()});
    return {dqkv};
  }
};

}  // namespace

Tensor attention(const Tensor& packed, const kernel::AttentionOptions& options) {
  check(packed.rank() == 3 && options.heads >= 1 && packed.size(2) % (3 * options.heads) == 0,
        "[ops.attention] packed q, k, v; expected [B, T, 3 x width] with {} heads dividing the "
        "width, got {}",
        options.heads, packed);
  const Tensor qkv = cast_of(packed, compute_dtype(packed, packed));
  const int64_t batch = qkv.size(0), context = qkv.size(1), width = qkv.size(2) / 3;
  Tensor out = Tensor::empty({batch, context, width}, qkv.dtype(), qkv.device());
  Tensor lse = floats(qkv, {batch, options.heads, context});
  kernel::attention(out, lse, qkv, options);
  return record<Attention>(out, {packed}, [&](Attention& n) {
    n.qkv = qkv, n.out = out, n.lse = lse, n.lengths = options.lengths;
    n.heads = options.heads, n.causal = options.causal;
  });
}

}  // namespace lockstep::ops
