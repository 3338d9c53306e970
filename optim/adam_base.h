#pragma once
#include "optim/optimizer.h"

namespace lockstep::optim {

/// Adam (Kingma & Ba 2015, arXiv:1412.6980, algorithm 1) in PyTorch's form, g = factor·gradient:
///     m ← β1·m + (1-β1)·g      v ← β2·v + (1-β2)·g²
///     w ← w - lr · (m / (1-β1ᵗ)) / (√(v / (1-β2ᵗ)) + eps)
/// What the variants differ in is where weight decay enters.
class AdamBase : public Optimizer {
 protected:
  /// `coupled`: g ← g + decay·w, through the moments. `decoupled`: w ← w·(1 - lr·decay) first.
  enum class Decay { coupled, decoupled };
  AdamBase(FlatView view, const OptimizerOptions& options, Decay decay);

 public:
  void state(StateIo& io) override;

 private:
  void update(std::span<const Run> runs, float factor) override;

  Decay decay_;
  Tensor m_, v_;
};

/// Settings of all of them, for the help text; the last line is the variant's.
std::vector<OptionDoc> adam_settings(std::string_view weight_decay);

}  // namespace lockstep::optim
