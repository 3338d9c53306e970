#pragma once
#include <string>
#include <vector>

#include "apps/transformer/gpt.h"

namespace lockstep::apps {

/// The two models that Lockstep is compared on.
struct Preset {
  std::string name;  ///< layers x width
  GptConfig config;
  int64_t batch;
};
inline const std::vector<Preset>& presets() {
  static const std::vector<Preset> all{
      {"4x128", {.vocab = 256, .layers = 4, .heads = 4, .width = 128, .context = 64}, 12},
      {"6x384", {.vocab = 256, .layers = 6, .heads = 6, .width = 384, .context = 256}, 8}};
  return all;
}
/// Floating-point operations of the products in one training step on `tokens` tokens: two a weight
/// and token forward, four backward, and those of causal attention, of which half the square
/// counts. What a faster step has to do, too: nothing that is computed twice.
inline double product_flops(const GptConfig& c, int64_t tokens) {
  const auto weights = static_cast<double>(12 * c.layers * c.width * c.width + c.vocab * c.width);
  const auto scores = static_cast<double>(c.layers * c.context * c.width);
  return 6 * static_cast<double>(tokens) * (weights + scores);
}

/// UsageError when there is none of this name.
inline const Preset& preset(const std::string& name) {
  for (const Preset& p : presets())
    if (p.name == name) return p;
  throw UsageError("--preset: expected 4x128 or 6x384, got '" + name + "'");
}

}  // namespace lockstep::apps
