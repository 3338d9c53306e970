#pragma once
#include "core/tensor.h"
#include "layers/init.h"
#include "layers/linear.h"
#include "layers/module.h"

#include <memory>
#include <vector>

namespace lockstep::apps {

struct ResidualNetConfig {
  int64_t channels = 3, classes = 10;
  int64_t width = 16;  ///< channels of the first stage; the second has twice, the third four times
  int64_t blocks = 3;  ///< of each stage
  enum class Norm { batch, group, none };
  Norm norm = Norm::batch;
  int64_t groups = 8;  ///< of Norm::group, in every stage
};

/// UsageError with the first thing that does not fit.
void check_config(const ResidualNetConfig& config);

/// Elements of all parameters of such a model; UsageError when it does not fit in 64 bits.
int64_t parameter_count(const ResidualNetConfig& config);

/// Floating-point operations of the products in one training step on `samples` images of `size` x
/// `size`: two a weight and place forward, four backward, two where no gradient of the input is
/// wanted.
double product_flops(const ResidualNetConfig& config, int64_t size, int64_t samples);

/// The residual net for small images of He et al. 2016 (arXiv:1512.03385, section 4.2): a 3 x 3
/// convolution, three stages of blocks of two such convolutions each, the mean of every plane, a
/// linear layer. The first block of the second and third stage halves the sides and doubles the
/// channels; its shortcut is a 1 x 1 convolution.
///
/// With a norm, one follows every convolution, which has no bias then. Without, each convolution
/// has a bias and the second of a block starts at 0, so that every block starts as the identity
/// (Zhang et al. 2019, arXiv:1901.09321).
///
/// Parameters: stem.*, blocks.N.first.*, blocks.N.second.*, blocks.N.shortcut.*, where * is
/// conv.weight and norm.weight, norm.bias or conv.bias; head.weight, head.bias. With Norm::batch
/// buffers *.norm.running_mean, …
class ResidualNet final : public layers::Module {
 public:
  /// Values depend on config and seed alone.
  ResidualNet(const ResidualNetConfig& config, uint64_t seed);
  ~ResidualNet() override;

  /// images [B, channels, S, S], of any S, give [B, classes]. B may be 0. Records unless a NoGrad
  /// is alive.
  Tensor logits(const Tensor& images) const;
  /// Σ over images of the cross-entropy against labels i32 or i64 [B].
  Tensor loss_sum(const Tensor& images, const Tensor& labels) const;

  const ResidualNetConfig& config() const { return config_; }

 private:
  class Unit;
  struct Block;
  ResidualNetConfig config_;
  layers::Initialiser init_;
  std::unique_ptr<Unit> stem_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<layers::Linear> head_;
};

}  // namespace lockstep::apps
