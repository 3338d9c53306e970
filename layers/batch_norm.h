#pragma once
#include <memory>
#include <optional>

#include "autograd/ops.h"
#include "layers/init.h"
#include "layers/module.h"

namespace lockstep::layers {

struct BatchNormOptions {
  float eps = 1e-5f;
  /// Weight of a batch in the running values; none: cumulative, the average over all batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;  ///< parameters "weight" (starts at 1) and "bias" (starts at 0)
};

/// Batch normalisation of x[N, C] or x[N, C, L…] (Ioffe & Szegedy 2015, arXiv:1502.03167), computed
/// in f32 whatever x is. In training it normalises by the batch's mean and biased variance and
/// moves the buffers "running_mean" and "running_var" towards the mean and the unbiased variance
/// ("num_batches_tracked" counts); in evaluation, or frozen, it normalises by the buffers, which
/// are constants then.
///
/// Its batch is what one call sees: a micro-batch, and of this rank, unless an exchange joins the
/// ranks (distributed/layers/sync_batch_norm.h). Training with one value a channel, of all ranks
/// where they are joined, is a UsageError, for it has no variance; with none it gives none and
/// leaves the buffers alone. So does a channel with values that are not finite.
class BatchNorm final : public Module {
 public:
  BatchNorm(Initialiser& init, int64_t channels, const BatchNormOptions& options = {});
  Tensor operator()(const Tensor& x) const;
  /// relu(norm(x) + addend) in one pass; addend, of x's shape, may be undefined.
  Tensor relu(const Tensor& x, const Tensor& addend = {}) const;

  /// From here on training, too, normalises by the buffers and leaves them alone; weight and bias
  /// go on learning.
  void freeze() { frozen_ = true; }
  bool frozen() const { return frozen_; }

  /// Whose values count besides this rank's in training; null: nobody's.
  void join(std::shared_ptr<autograd::MomentExchange> exchange) { exchange_ = std::move(exchange); }
  bool joined() const { return exchange_ != nullptr; }

  const Tensor& running_mean() const { return running_mean_; }
  const Tensor& running_variance() const { return running_variance_; }
  int64_t batches() const { return static_cast<int64_t>(batches_.item()); }

 private:
  bool constant() const { return frozen_ || mode() == Mode::evaluate; }
  void check_channels(const Tensor& x) const;
  ops::BatchMoments moments(const Tensor& x) const;  // of a batch in training, noted in the buffers
  void note(const ops::BatchMoments& batch) const;

  BatchNormOptions options_;
  Tensor weight_, bias_;
  Tensor running_mean_, running_variance_, batches_;
  std::shared_ptr<autograd::MomentExchange> exchange_;
  bool frozen_ = false;
};

/// Freezes all batch normalisations of a model; on several ranks once their buffers are equal.
/// Returns how many there are.
int freeze_batch_norms(Module& module);
/// Whether what the model computes for a sample in training depends on the other samples of its
/// micro-batch: then accumulating micro-batches is not the same as a large batch.
bool uses_batch_statistics(Module& module);

}  // namespace lockstep::layers
