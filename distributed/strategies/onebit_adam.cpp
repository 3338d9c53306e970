// 1-bit Adam (Tang et al. 2021, arXiv:2102.02888, algorithm 1). The first `warmup` steps are Adam
// with gradients summed as under `allreduce`. By then the variance v hardly changes; it is frozen,
// and what ranks exchange is the momentum, a bit an element, with error feedback on the workers and
// on the owners of sums. A mean over samples is a sum of each rank's share (n ranks, W samples):
//     m ← decode( Σ_i code( β1·m/n + (1-β1)·g_i/W ) )      w ← w - lr·m̂ / (√v̂ + eps)
// Gradients themselves could not be sent so: Adam is not linear in them, and what error feedback
// sends later would change v. Moves the momentum's code in and that of its sum out, about P/4 bytes
// a step, when backward is over; in the warm-up 2·P·(n-1)/n elements, as allreduce does.
//
// CONTRACT: v and its bias correction are those of the end of the warm-up; the correction of m goes
// on. What a bit is off by is as large for every element of a tensor, so √v̂ is at least `floor`
// times its root mean square there: else elements with next to no gradient so far (rows of rare
// words) would be thrown anywhere. floor=0 is the paper's; elements that no gradient has reached
// stand still then, as do tensors. A parameter
// that no rank used counts as one with a gradient of zero, as its momentum is sent all the same.
// Adam's L2 decay goes through the momentum, AdamW's does not. Nobody knows the norm of the sum of
// gradients; --clip goes by Σ of the ranks' norms, which is at least that. A skipped step changes
// neither momentum nor residuals. code=none sends the momentum as it is: what freezing alone does.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/check.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"
#include "distributed/comm/scalars.h"
#include "distributed/strategies/moment_finder.h"
#include "distributed/sync_strategy.h"

namespace lockstep::distributed {
namespace {

class OneBitAdam final : public SyncStrategy {
 public:
  explicit OneBitAdam(const Spec& spec)
      : warmup_(spec.integer("warmup", 100, {.min = 1})),
        floor_(spec.number("floor", 0.1, {.min = 0, .max = 1})),
        coded_(spec.text("code", "sign", {"sign", "none"}) == "sign") {}

  void attach(SyncContext& context) override {
    SyncStrategy::attach(context);
    optim::FlatView all = context.params->all();
    momentum_ = all.grad = zeros(all.grad.shape(), DType::f32);
    exchange_ = std::make_unique<Exchange>(
        *context.comm, ExchangeOptions{.compress = coded_ ? "sign+ef" : ""}, all);
    for (const GradientBucket& bucket : context.buckets)
      ranges_.push_back(all.range(bucket.view.offset, bucket.view.offset + bucket.view.numel()));
    works_.resize(ranges_.size());
    pieces_ = pieces_of(momentum_);
  }

  void start(Optimizer& optimizer) override {
    check(steps_with(optimizer.name()),
          "[strategy.onebit_adam] the optimiser whose variance is frozen; expected adam or adamw, "
          "got {}",
          optimizer.name());
    MomentFinder found(optimizer);
    m_ = found.moments.at("m");
    v_ = found.moments.at("v");
    counts_ = std::move(found.counts);
    weights_ = pieces_of(optimizer.weights());
  }

  void on_bucket(GradientBucket& bucket) override {
    if (warming_up()) bucket.work = context_->exchange->sum(bucket.view, {"bucket", bucket.index});
  }

  StepVerdict step(Optimizer& optimizer, const StepVerdict& verdict) override {
    if (warming_up() || !verdict.apply) return SyncStrategy::step(optimizer, verdict);
    if (!frozen_) freeze(optimizer);
    make_share(optimizer, factor_of(verdict));
    StepVerdict made = verdict;
    made.finite = made.apply = sum_shares(optimizer, verdict);
    if (made.apply) apply(optimizer);
    return made;
  }

  void resolve(bool applied) override {
    SyncStrategy::resolve(applied);
    exchange_->resolve(applied);
    if (applied) ++steps_;
  }

  bool synchronous() const override { return false; }
  bool sums_gradients() const override { return false; }
  bool sends_gradients() const override { return false; }
  bool steps_with(std::string_view optimizer) const override {
    return optimizer == "adam" || optimizer == "adamw";
  }
  double bytes_per_step() const override {
    if (warming_up()) return all_reduce_bytes(*context_);
    double bytes = 8.0 * (context_->comm->size() - 1);  // norms
    for (const optim::FlatView& range : ranges_) bytes += exchange_->bytes(range);
    return bytes;
  }

  void report(StrategyReport& report) override {
    if (warming_up())
      report.add("warmup_left", static_cast<double>(warmup_ - steps_));
    else if (coded_ && exchange_->report().total().sums > 0)
      report.add("compression", exchange_->report().total().effective_ratio());
  }

  void state(StateIo& io) override {
    SyncStrategy::state(io);
    io.value("onebit_adam.steps", steps_, Fold::replicated);
    PrefixedState prefixed(io, "onebit_adam.");
    exchange_->state(prefixed);
    frozen_ = false;  // it may have been loaded
  }

 private:
  bool warming_up() const { return steps_ < warmup_; }
  std::vector<Tensor> pieces_of(const Tensor& flat) const {
    std::vector<Tensor> pieces;
    for (const optim::ParamSlice& slice : context_->params->slices())
      pieces.push_back(flat.slice(slice.begin, slice.end));
    return pieces;
  }

  // 1 / (√v̂ + eps) at the end of the warm-up. Every step since then counted for all parameters.
  void freeze(const Optimizer& optimizer) {
    if (!inverse_.defined()) inverse_ = empty_like(momentum_);
    const optim::OptimizerOptions& o = optimizer.options();
    const auto slices = context_->params->slices();
    const float* v = v_.data<float>();
    float* inverse = inverse_.mutable_data<float>();
    for (size_t i = 0; i < slices.size(); ++i) {
      const auto updates = static_cast<double>(*counts_[i] - (steps_ - warmup_));
      const double correction = 1 - std::pow(o.beta2, updates);
      double sum = 0;
      for (int64_t k = slices[i].begin; k < slices[i].end; ++k) sum += double{v[k]};
      const double least =
          floor_ * floor_ * sum / static_cast<double>(slices[i].end - slices[i].begin);
      for (int64_t k = slices[i].begin; k < slices[i].end; ++k) {
        const double variance = std::max(double{v[k]}, least);
        inverse[k] = variance > 0
                         ? static_cast<float>(1 / (std::sqrt(variance / correction) + o.eps))
                         : 0.0f;
      }
    }
    frozen_ = true;
  }

  // Of this rank's gradient, which no exchange has divided.
  double factor_of(const StepVerdict& verdict) {
    const double divided = context_->exchange->factor();
    if (verdict.max_norm == 0) return verdict.factor * divided;
    const double factor = verdict.mean_factor * divided;
    const double norm = factor * std::sqrt(kernel::sum_of_squares(context_->params->all().grad));
    const double norms = sum_over_ranks(*context_->comm, norm);
    return norms > verdict.max_norm ? factor * (verdict.max_norm / norms) : factor;
  }

  void make_share(const Optimizer& optimizer, double factor) {
    const optim::OptimizerOptions& o = optimizer.options();
    const double n = context_->comm->size();
    kernel::scale(momentum_, context_->params->all().grad,
                  static_cast<float>((1 - o.beta1) * factor));
    kernel::add_scaled(momentum_, m_, static_cast<float>(o.beta1 / n));
    if (optimizer.name() == "adam" && o.weight_decay > 0)
      for (size_t i = 0; i < weights_.size(); ++i)
        if (context_->params->slices()[i].decay)
          kernel::add_scaled(pieces_[i], weights_[i],
                             static_cast<float>((1 - o.beta1) * o.weight_decay / n));
  }

  // Whether all went well, on all ranks.
  bool sum_shares(const Optimizer& optimizer, const StepVerdict& verdict) {
    exchange_->window({.scale = 1, .weight = verdict.weight, .lr = optimizer.lr()});
    for (size_t i = 0; i < ranges_.size(); ++i)
      works_[i] = exchange_->sum(ranges_[i], {"momentum of bucket", static_cast<int64_t>(i)});
    for (WorkPtr& work : works_) {
      work->wait();
      work.reset();
    }
    return !exchange_->take_overflow() && kernel::first_non_finite(momentum_) < 0;
  }

  void apply(Optimizer& optimizer) {
    const optim::OptimizerOptions& o = optimizer.options();
    kernel::copy(m_, momentum_);
    kernel::binary(momentum_, momentum_, inverse_, kernel::Binary::multiply);
    const auto slices = context_->params->slices();
    for (size_t i = 0; i < slices.size(); ++i) {
      const auto updates = static_cast<double>(++*counts_[i]);
      const double rate = optimizer.lr() / (1 - std::pow(o.beta1, updates));
      if (optimizer.name() == "adamw" && slices[i].decay && o.weight_decay > 0)
        kernel::scale(weights_[i], weights_[i],
                      static_cast<float>(1 - optimizer.lr() * o.weight_decay));
      kernel::add_scaled(weights_[i], pieces_[i], static_cast<float>(-rate));
    }
    optimizer.publish();
  }

  int64_t warmup_;
  double floor_;
  bool coded_;
  // Of the optimiser; by parameter.
  Tensor m_, v_;
  std::vector<int64_t*> counts_;
  std::vector<Tensor> weights_;
  Tensor momentum_;             // f32: this rank's share; the sum; the step's direction
  std::vector<Tensor> pieces_;  // of momentum_, by parameter
  std::unique_ptr<Exchange> exchange_;
  std::vector<optim::FlatView> ranges_;  // of momentum_, by bucket
  std::vector<WorkPtr> works_;
  int64_t steps_ = 0;  // applied
  // Follows from the optimiser's v.
  bool frozen_ = false;
  Tensor inverse_;  // 1 / (√v̂ + eps), or 0
};

const Register<SyncStrategy, OneBitAdam> registered{
    "onebit_adam",
    "Adam; after a warm-up its variance is frozen and its momentum travels in 1 bit",
    {{"warmup", "steps that are plain Adam before: a sixth of a run, say (100)"},
     {"floor", "of the frozen root of v, in units of its tensor's root mean square (0.1)"},
     {"code", "of the momentum: sign|none, none shows what freezing alone does (sign)"}}};

}  // namespace
}  // namespace lockstep::distributed
