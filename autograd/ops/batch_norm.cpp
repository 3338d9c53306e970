#include "core/kernels/batch_norm.h"

#include "autograd/ops/helpers.h"
#include "core/kernels/elementwise.h"

namespace lockstep::ops {
namespace {

// The statistics are the batch's own, so that the gradient goes through them, or constants.
enum class Statistics { own, constant };

// What becomes of what was normalised.
enum class After { nothing, relu, add_relu };

struct BatchNorm final : Node {
  Saved x, statistics, gamma;
  Saved beta, y;  // where the ReLU needs them: beta without an addend, y with one
  Statistics kind = Statistics::own;
  After after = After::nothing;
  int64_t count = 0;
  std::shared_ptr<autograd::MomentExchange> exchange;
  std::string_view name() const override {
    return after == After::nothing ? "batch_norm" : "batch_norm_relu";
  }
  Tensors backward(const Tensors& gradients) override {
    Tensor dy = gradients[0], dx, dgamma, dbeta, daddend, sums;
    const bool through = kind == Statistics::own && needs(0) && count > 0;
    if (through || needs(1) || needs(2) || after == After::add_relu) {
      sums = floats(x, {2, x.get().size(1)});
      if (after == After::nothing)
        kernel::batch_norm_backward_sums(sums, dy, x, statistics);
      else if (after == After::relu)
        kernel::batch_norm_relu_backward_sums(sums, dy, x, statistics, maybe(gamma), maybe(beta));
      else
        dy = pass(sums, dy);
      if (needs(3)) daddend = dy;
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
    if (!needs(0)) return {dx, dgamma, dbeta, daddend};
    if (through && exchange) exchange->add(sums);
    dx = gradient_for(0, x);
    const Tensor used = through ? sums : Tensor();
    if (after == After::relu)
      kernel::batch_norm_relu_backward(dx, dy, x, statistics, maybe(gamma), maybe(beta), used,
                                       count);
    else
      kernel::batch_norm_backward(dx, dy, x, statistics, maybe(gamma), used, count);
    return {dx, dgamma, dbeta, daddend};
  }

 private:
  static Tensor maybe(const Saved& s) { return s.defined() ? s.get() : Tensor(); }
  // dy where the ReLU let it through.
  Tensor pass(const Tensor& sums, const Tensor& dy) const {
    const Tensor passed = needs(3) ? gradient_for(3, y) : like(dy);
    kernel::batch_norm_add_relu_backward_sums(sums, passed, dy, y, x, statistics);
    return passed;
  }
};

// What an operation normalises by and what comes after it.
struct Plan {
  Tensor statistics;
  Statistics kind;
  int64_t count;
  DType dtype;
  After after = After::nothing;
  Tensor addend = {};
  std::shared_ptr<autograd::MomentExchange> exchange = nullptr;
};

Tensor apply(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Plan& plan) {
  Tensor y = like(x, plan.dtype);
  if (plan.after == After::nothing)
    kernel::batch_norm(y, x, plan.statistics, gamma, beta);
  else
    kernel::batch_norm_relu(y, x, plan.statistics, gamma, beta, plan.addend);
  return record<BatchNorm>(y, {x, gamma, beta, plan.addend}, [&](BatchNorm& n) {
    n.x = x, n.statistics = plan.statistics, n.kind = plan.kind, n.count = plan.count;
    n.after = plan.after;
    if (gamma.defined()) n.gamma = gamma;
    if (plan.after == After::relu && beta.defined()) n.beta = beta;
    if (plan.after == After::add_relu) n.y = y;
    n.exchange = plan.exchange;
  });
}

After relu_after(const Tensor& x, const Tensor& addend) {
  if (!addend.defined()) return After::relu;
  check(addend.shape() == x.shape(), "[ops.batch_norm_relu] addend; expected {}, got {}", x.shape(),
        addend.shape());
  return After::add_relu;
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
  return apply(x, gamma, beta,
               {.statistics = statistics_of(batch, eps),
                .kind = Statistics::own,
                .count = batch.count,
                .dtype = result_dtype(x, gamma),
                .exchange = std::move(exchange)});
}

Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, float eps) {
  return batch_norm(x, gamma, beta, batch_moments(x), eps);
}

Tensor batch_norm_relu(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                       const BatchMoments& batch, float eps, const Tensor& addend,
                       std::shared_ptr<autograd::MomentExchange> exchange) {
  return apply(x, gamma, beta,
               {.statistics = statistics_of(batch, eps),
                .kind = Statistics::own,
                .count = batch.count,
                .dtype = result_dtype(x, gamma),
                .after = relu_after(x, addend),
                .addend = addend,
                .exchange = std::move(exchange)});
}

namespace {

Plan fixed(const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& variance,
           float eps) {
  const Tensor statistics = floats(x, {3, mean.numel()});
  kernel::fixed_statistics(statistics, mean, variance, eps);
  return {.statistics = statistics,
          .kind = Statistics::constant,
          .count = 0,
          .dtype = result_dtype(x, gamma)};
}

}  // namespace

Tensor fixed_batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                        const Tensor& mean, const Tensor& variance, float eps) {
  return apply(x, gamma, beta, fixed(x, gamma, mean, variance, eps));
}

Tensor fixed_batch_norm_relu(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                             const Tensor& mean, const Tensor& variance, float eps,
                             const Tensor& addend) {
  Plan plan = fixed(x, gamma, mean, variance, eps);
  plan.after = relu_after(x, addend), plan.addend = addend;
  return apply(x, gamma, beta, plan);
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
    normed = reshape(apply(grouped, {}, {},
                           {.statistics = statistics_of(batch, eps),
                            .kind = Statistics::own,
                            .count = batch.count,
                            .dtype = affine ? DType::f32 : result_dtype(x, gamma)}),
                     x.shape());
    if (!affine) return normed;
  }
  const Tensor identity = floats(x, {3, channels});
  kernel::fill(identity.slice(0, 2), 0);
  kernel::fill(identity.slice(2, 3), 1);
  return apply(normed, gamma, beta,
               {.statistics = identity,
                .kind = Statistics::constant,
                .count = 0,
                .dtype = result_dtype(x, gamma)});
}

}  // namespace lockstep::ops
