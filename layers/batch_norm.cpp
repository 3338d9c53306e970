#include "layers/batch_norm.h"

#include "core/kernels/batch_norm.h"
#include "core/kernels/elementwise.h"

namespace lockstep::layers {

BatchNorm::BatchNorm(Initialiser& init, int64_t channels, const BatchNormOptions& options)
    : options_(options) {
  check(channels >= 1, "[layers.batch_norm] expected at least 1 channel, got {}", channels);
  check(options.eps > 0, "[layers.batch_norm] eps; expected more than 0, got {}", options.eps);
  check(!options.momentum || (*options.momentum >= 0 && *options.momentum <= 1),
        "[layers.batch_norm] momentum; expected 0 to 1, or none, got {}",
        options.momentum.value_or(0));
  if (options.affine) {
    weight_ = init.constant({channels}, 1);
    bias_ = init.constant({channels}, 0);
    add_parameter("weight", weight_, Decay::no);
    add_parameter("bias", bias_, Decay::no);
  }
  running_mean_ = zeros({channels});
  running_variance_ = full({channels}, 1);
  batches_ = zeros({}, DType::i64);
  add_buffer("running_mean", running_mean_);
  add_buffer("running_var", running_variance_);
  add_buffer("num_batches_tracked", batches_);
}

Tensor BatchNorm::operator()(const Tensor& x) const {
  check_channels(x);
  if (constant())
    return ops::fixed_batch_norm(x, weight_, bias_, running_mean_, running_variance_, options_.eps);
  return ops::batch_norm(x, weight_, bias_, moments(x), options_.eps, exchange_);
}

Tensor BatchNorm::relu(const Tensor& x, const Tensor& addend) const {
  check_channels(x);
  if (constant())
    return ops::fixed_batch_norm_relu(x, weight_, bias_, running_mean_, running_variance_,
                                      options_.eps, addend);
  return ops::batch_norm_relu(x, weight_, bias_, moments(x), options_.eps, addend, exchange_);
}

void BatchNorm::check_channels(const Tensor& x) const {
  check(x.rank() >= 2 && x.size(1) == running_mean_.numel(),
        "[layers.batch_norm] expected [N, {}, ...], got {}", running_mean_.numel(), x.shape());
}

ops::BatchMoments BatchNorm::moments(const Tensor& x) const {
  const ops::BatchMoments batch = ops::batch_moments(x, exchange_.get());
  check(batch.count != 1,
        "[layers.batch_norm] training; expected more than one value a channel{}, got {} here",
        exchange_ ? " over all ranks" : "", x.shape());
  if (batch.count > 0) note(batch);
  return batch;
}

void BatchNorm::note(const ops::BatchMoments& batch) const {
  const int64_t number = batches() + 1;
  kernel::fill(batches_, static_cast<double>(number));
  kernel::update_running(running_mean_, running_variance_, batch.moments, batch.count,
                         options_.momentum.value_or(1 / static_cast<double>(number)));
}

int freeze_batch_norms(Module& module) {
  int frozen = 0;
  module.visit([&](const std::string&, Module& m) {
    if (auto* norm = dynamic_cast<BatchNorm*>(&m)) {
      norm->freeze();
      ++frozen;
    }
  });
  return frozen;
}

bool uses_batch_statistics(Module& module) {
  bool uses = false;
  module.visit([&](const std::string&, Module& m) {
    const auto* norm = dynamic_cast<BatchNorm*>(&m);
    uses |= norm != nullptr && !norm->frozen();
  });
  return uses;
}

}  // namespace lockstep::layers
