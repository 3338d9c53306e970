#include "core/kernels/batch_norm.h"

#include "autograd/ops/helpers.h"
#include "core/kernels/elementwise.h"

namespace lockstep::ops {
namespace {

// The statistics are the batch's own, so that the gradient goes through them, or constants.
enum class Statistics { own, constant };

struct BatchNorm final : Node {
  Saved x, statistics, gamma;
  Statistics kind = Statistics::own;
  int64_t count = 0;
  std::shared_ptr<autograd::MomentExchange> exchange;
  std::string_view name() const override { return "batch_norm"; }
  Tensors backward(const Tensors& dy) override {
    Tensor dx, dgamma, dbeta, sums;
    const bool through = kind == Statistics::own && needs(0) && count > 0;
    if (through || needs(1) || needs(2)) {
      sums = floats(x, {2, x.get().size(1)});
      kernel::batch_norm_backward_sums(sums, dy[0], x, statistics);
      const Shape channels{sums.size(1)};
      if (needs(1)) {  // this rank's share, as of every parameter
        dgamma = gradient_for(1, channels, x);
        kernel::cast(dgamma, sums.slice(1, 2).reshape(channels));
      }
      if (needs(2)) {
        dbeta = gradient_for(2, channels, x);
        kernel::cast(dbeta, sums.slice(0, 1).reshape(channels));
      }
    }
    if (!needs(0)) return {dx, dgamma, dbeta};
    if (through && exchange) exchange->add(sums);
    dx = gradient_for(0, x);
    kernel::batch_norm_backward(dx, dy[0], x, statistics, gamma.defined() ? gamma.get() : Tensor(),
                                through ? sums : Tensor(), count);
    return {dx, dgamma, dbeta};
  }
};

Tensor apply(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& statistics,
             Statistics kind, int64_t count, DType dtype,
             std::shared_ptr<autograd::MomentExchange> exchange = nullptr) {
  Tensor y = like(x, dtype);
  kernel::batch_norm(y, x, statistics, gamma, beta);
  return record<BatchNorm>(y, {x, gamma, beta}, [&](BatchNorm& n) {
    n.x = x, n.statistics = statistics, n.kind = kind, n.count = count;
    if (gamma.defined()) n.gamma = gamma;
    n.exchange = std::move(exchange);
  });
}

// C of the table in the README.
DType result_dtype(const Tensor& x, const Tensor& gamma) {
  return compute_dtype(x, gamma.defined() ? gamma : x);
}

Tensor statistics_of(const BatchMoments& batch, float eps) {
  const Tensor statistics = floats(batch.moments, batch.moments.shape());
  if (batch.count > 0)
    kernel::batch_statistics(statistics, batch.moments, batch.count, eps);
  else
    kernel::fill(statistics, 0);  // nobody has values: nothing to normalise
  return statistics;
}

}  // namespace

BatchMoments batch_moments(const Tensor& x, autograd::MomentExchange* exchange) {
  check(x.rank() >= 2 && x.size(1) >= 1,
        "[ops.batch_norm] expected [N, C, ...] with at least one channel, got {}", x.shape());
  BatchMoments batch{floats(x, {3, x.size(1)}), x.numel() / x.size(1)};
  kernel::channel_moments(batch.moments, x);
  if (exchange != nullptr) batch.count = exchange->join(batch.moments, batch.count);
  return batch;
}

Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                  const BatchMoments& batch, float eps,
                  std::shared_ptr<autograd::MomentExchange> exchange) {
  return apply(x, gamma, beta, statistics_of(batch, eps), Statistics::own, batch.count,
               result_dtype(x, gamma), std::move(exchange));
}

Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, float eps) {
  return batch_norm(x, gamma, beta, batch_moments(x), eps);
}

Tensor fixed_batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                        const Tensor& mean, const Tensor& variance, float eps) {
  const Tensor statistics = floats(x, {3, mean.numel()});
  kernel::fixed_statistics(statistics, mean, variance, eps);
  return apply(x, gamma, beta, statistics, Statistics::constant, 0, result_dtype(x, gamma));
}

// A group of a sample is a channel of its own; then gamma and beta are those of a channel with mean
// 0 and deviation 1. What lies between the two is kept in f32.
Tensor group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, int64_t groups,
                  float eps) {
  check(x.rank() >= 2, "[ops.group_norm] expected [N, C, ...], got {}", x.shape());
  const int64_t channels = x.size(1);
  check(groups >= 1 && channels >= groups && channels % groups == 0,
        "[ops.group_norm] expected a number of groups that divides {} channels, got {}", channels,
        groups);
  const int64_t all = checked_mul(x.size(0), groups);
  Tensor normed = x;
  if (x.numel() > 0) {
    const Tensor grouped = reshape(x, {1, all, x.numel() / all});
    const BatchMoments batch = batch_moments(grouped);
    const bool affine = gamma.defined() || beta.defined();
    normed = reshape(apply(grouped, {}, {}, statistics_of(batch, eps), Statistics::own, batch.count,
                           affine ? DType::f32 : result_dtype(x, gamma)),
                     x.shape());
    if (!affine) return normed;
  }
  const Tensor identity = floats(x, {3, channels});
  kernel::fill(identity.slice(0, 2), 0);
  kernel::fill(identity.slice(2, 3), 1);
  return apply(normed, gamma, beta, identity, Statistics::constant, 0, result_dtype(x, gamma));
}

}  // namespace lockstep::ops
