#include "apps/transformer/gpt.h"

#include "autograd/ops.h"

namespace lockstep::apps {
namespace {

constexpr double kSd = 0.02;

const GptConfig& checked(const GptConfig& config) {
  check_config(config);
  return config;
}

}  // namespace

void check_config(const GptConfig& c) {
  const auto positive = [](const char* name, int64_t value) {
    check(value >= 1, "[gpt.config] {}; expected at least 1, got {}", name, value);
  };
  positive("vocab", c.vocab);
  positive("layers", c.layers);
  positive("heads", c.heads);
  positive("width", c.width);
  positive("context", c.context);
  check(c.width % c.heads == 0, "[gpt.config] heads; expected a divisor of the width {}, got {}",
        c.width, c.heads);
  check(c.dropout >= 0 && c.dropout < 1, "[gpt.config] dropout; expected 0 <= p < 1, got {}",
        c.dropout);
}

int64_t parameter_count(const GptConfig& c) {
  const int64_t bias = c.bias ? 1 : 0;
  const int64_t square = checked_mul(checked_mul(c.width, c.width), 12);
  const int64_t block = checked_add(square, checked_mul(c.width, 2 + bias * (2 + 3 + 1 + 4 + 1)));
  const int64_t embeddings = checked_mul(checked_add(c.vocab, c.context), c.width);
  return checked_add(checked_add(embeddings, checked_mul(block, c.layers)),
                     checked_mul(c.width, 1 + bias));
}

// One layer: x + attention(ln1(x)), then x + mlp(ln2(x)).
struct Gpt::Block final : layers::Module {
  Block(layers::Initialiser& init, const GptConfig& c, int64_t number)
      : ln1(init, c.width, {.bias = c.bias}),
        attention(init, c.width,
                  {.heads = static_cast<int>(c.heads),
                   .bias = c.bias,
                   .init = layers::normal(kSd),
                   .projection_init = layers::residual_init(layers::normal(kSd), c.layers)}),
        ln2(init, c.width, {.bias = c.bias}),
        mlp(init, c.width,
            {.bias = c.bias,
             .gelu = c.gelu,
             .init = layers::normal(kSd),
             .projection_init = layers::residual_init(layers::normal(kSd), c.layers)}),
        dropout1(c.dropout, static_cast<uint32_t>(1 + 2 * number)),
        dropout2(c.dropout, static_cast<uint32_t>(2 + 2 * number)) {
    add_child("ln1", ln1);
    add_child("attention", attention);
    add_child("ln2", ln2);
    add_child("mlp", mlp);
    add_child("dropout1", dropout1);
    add_child("dropout2", dropout2);
  }

  layers::LayerNorm ln1;
  layers::CausalSelfAttention attention;
  layers::LayerNorm ln2;
  layers::Mlp mlp;
  layers::Dropout dropout1, dropout2;
};

Gpt::Gpt(const GptConfig& config, uint64_t seed)
    : config_(checked(config)),
      init_(seed),
      wte_(init_, config.vocab, config.width, layers::normal(kSd)),
      wpe_(init_, config.context, config.width, layers::normal(kSd)),
      dropout_(config.dropout, 0) {
  add_child("wte", wte_);
  add_child("wpe", wpe_);
  add_child("dropout", dropout_);
  for (int64_t i = 0; i < config.layers; ++i) {
    blocks_.push_back(std::make_unique<Block>(init_, config_, i));
    add_child(fmt::format("blocks.{}", i), *blocks_.back());
  }
  norm_ = std::make_unique<layers::LayerNorm>(init_, config.width,
                                              layers::LayerNormOptions{.bias = config.bias});
  add_child("ln", *norm_);
  tie("lm_head.weight", "wte.weight");
}

Gpt::~Gpt() = default;

// Each residual step is fused with the norm that follows it, across the borders of blocks: `x` is
// the residual stream, `normed` what the next branch reads.
Tensor Gpt::features(const Tensor& ids, const layers::SampleKey& key) const {
  check(ids.rank() == 2, "[gpt.logits] ids; expected [batch, time], got {}", ids);
  const int64_t time = ids.size(1);
  check(time >= 1 && time <= config_.context,
        "[gpt.logits] ids; expected 1 to {} positions, got {}", config_.context, time);
  Tensor x = dropout_(ops::add(wte_(ids), ops::slice(wpe_.weight(), 0, time)), key);
  Tensor normed = blocks_.front()->ln1(x);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = *blocks_[i];
    const layers::LayerNorm& after = i + 1 < blocks_.size() ? blocks_[i + 1]->ln1 : *norm_;
    const auto middle = block.ln2(block.dropout1(block.attention(normed), key), x);
    const auto end = after(block.dropout2(block.mlp(middle.out), key), middle.sum);
    x = end.sum, normed = end.out;
  }
  return normed;
}

Tensor Gpt::logits(const Tensor& ids, const layers::SampleKey& key) const {
  return ops::linear(features(ids, key), wte_.weight());
}

Tensor Gpt::loss_sum(const Tensor& ids, const Tensor& targets, const layers::SampleKey& key,
                     int64_t ignore) const {
  check(targets.shape() == ids.shape(), "[gpt.loss_sum] targets; expected {}, got {}", ids.shape(),
        targets.shape());
  return ops::softmax_cross_entropy_sum(logits(ids, key), targets, ignore);
}

}  // namespace lockstep::apps
