#pragma once
#include <memory>
#include <vector>

#include "autograd/ops.h"
#include "layers/attention.h"
#include "layers/dropout.h"
#include "layers/embedding.h"
#include "layers/layer_norm.h"
#include "layers/mlp.h"

namespace lockstep::apps {

struct GptConfig {
  int64_t vocab = 256, layers = 4, heads = 4, width = 128, context = 64;
  bool bias = true;  ///< in the linear layers and norms
  kernel::Gelu gelu = kernel::Gelu::tanh;
  float dropout = 0;  ///< after the embedding and at the end of each residual branch
};

/// UsageError with the first thing that does not fit.
void check_config(const GptConfig& config);

/// Elements of all parameters of such a model; UsageError when it does not fit in 64 bits.
int64_t parameter_count(const GptConfig& config);

/// A decoder-only transformer with pre-norm blocks, learned positions and the head tied to the
/// token embedding (Radford et al. 2019, GPT-2). Weights start normal with sd 0.02, projections
/// that end a residual branch with 0.02 / √(2 · layers), biases 0.
///
/// Parameters: wte.weight (alias lm_head.weight), wpe.weight, blocks.N.ln1.*,
/// blocks.N.attention.qkv.*, blocks.N.attention.proj.*, blocks.N.ln2.*, blocks.N.mlp.fc.*,
/// blocks.N.mlp.out.*, ln.*, where * is weight and, unless config.bias is off, bias.
class Gpt final : public layers::Module {
 public:
  Gpt(const GptConfig& config, uint64_t seed);
  ~Gpt() override;

  /// ids i32 or i64 [B, T], T at most the context, give logits [B, T, vocab]. `key` matters for
  /// dropout only. Records unless a NoGrad is alive.
  Tensor logits(const Tensor& ids, const layers::SampleKey& key = {}) const;
  /// Σ over positions of the cross-entropy against targets [B, T]; those equal to `ignore` count 0.
  Tensor loss_sum(const Tensor& ids, const Tensor& targets, const layers::SampleKey& key = {},
                  int64_t ignore = ops::kIgnoreIndex) const;

  const GptConfig& config() const { return config_; }

 private:
  struct Block;
  Tensor features(const Tensor& ids, const layers::SampleKey& key) const;

  GptConfig config_;
  layers::Initialiser init_;
  layers::Embedding wte_, wpe_;
  layers::Dropout dropout_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<layers::LayerNorm> norm_;  // made after the blocks
};

}  // namespace lockstep::apps
