#include "distributed/strategies/local_rounds.h"

#include "core/kernels/elementwise.h"
#include "distributed/strategies/moment_finder.h"

namespace lockstep::distributed {
LocalRounds::LocalRounds(const Spec& spec)
    : every_(spec.integer("every", 8, {.min = 1})), warmup_(spec.integer("warmup", 0, {.min = 0})) {
  const std::string moments = spec.text("moments", "local", {"local", "average", "reset"});
  moments_ = moments == "local"     ? Moments::local
             : moments == "average" ? Moments::average
                                    : Moments::reset;
}

std::vector<OptionDoc> LocalRounds::settings(std::vector<OptionDoc> more) {
  std::vector<OptionDoc> all = {{"every", "H, optimiser steps between meetings (8)"},
                                {"warmup", "synchronous steps before the first round (0)"},
                                {"moments", "of the inner optimiser: local|average|reset (local)"}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void LocalRounds::on_bucket(GradientBucket& bucket) {
  if (warming_up()) bucket.work = context_->exchange->sum(bucket.view, {"bucket", bucket.index});
}

StepVerdict LocalRounds::judge(const StepVerdict& fresh) {
  counts_ = !warming_up() || (fresh.finite && fresh.active_ranks > 0);
  StepVerdict verdict = fresh;
  if (verdict_scope() == VerdictScope::this_rank) verdict.active_ranks = 1;  // goes on in any case
  return verdict;
}

StepVerdict LocalRounds::step(Optimizer& optimizer, const StepVerdict& verdict) {
  if (steps_ == warmup_) part(optimizer);
  return SyncStrategy::step(optimizer, verdict);
}

void LocalRounds::after_step(int64_t /*step*/) {
  if (!counts_) return;
  const bool meeting = ends_round();
  ++steps_;
  if (!meeting) return;
  Optimizer& optimizer = *context_->optimizer;
  meet(optimizer);
  if (moments_ == Moments::local) return;
  find_moments(optimizer);
  carry_moments_over();
}

void LocalRounds::find_moments(Optimizer& optimizer) {
  if (known_ == &optimizer) return;
  known_ = &optimizer;
  moment_buffers_.clear();
  MomentFinder found(optimizer);
  for (const auto& [name, moment] : found.moments) moment_buffers_.push_back(moment);
  step_counts_ = std::move(found.counts);
}

void LocalRounds::carry_moments_over() {
  if (moments_ == Moments::reset) {
    for (const Tensor& moment : moment_buffers_) kernel::fill(moment, 0);
    for (int64_t* count : step_counts_) *count = 0;
    return;
  }
  for (size_t i = 0; i < moment_buffers_.size(); ++i)
    context_->comm
        ->all_reduce(moment_buffers_[i],
                     {.op = ReduceOp::mean, .tag = {"moments", static_cast<int64_t>(i)}})
        ->wait();
}

void LocalRounds::before_evaluation() {
  if (!within_round()) return;
  Optimizer& optimizer = *context_->optimizer;
  own_.keep(optimizer);
  context_->comm
      ->all_reduce(optimizer.authority().param,
                   {.op = ReduceOp::mean, .tag = {"model to evaluate", steps_}})
      ->wait();
  optimizer.publish();
}

double LocalRounds::bytes_per_step() const {
  if (warming_up()) return all_reduce_bytes(*context_);
  const int64_t buffers =
      1 + (moments_ == Moments::average ? static_cast<int64_t>(moment_buffers_.size()) : 0);
  const int64_t bytes = buffers * context_->params->all().numel() * size_of(DType::f32);
  return all_reduce_bytes(*context_, bytes) / static_cast<double>(every_);
}

void LocalRounds::state(StateIo& io) {
  SyncStrategy::state(io);
  io.value("local.steps", steps_, Fold::replicated);
}

}  // namespace lockstep::distributed
