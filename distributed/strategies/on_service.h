#pragma once
#include <memory>

#include "distributed/parameter_service.h"
#include "distributed/strategies/kept_weights.h"
#include "distributed/sync_strategy.h"

namespace lockstep::distributed {

/// What strategies on a parameter service share: push a gradient, pull parameters, go on. The
/// service steps with an optimiser of the worker's class; the worker's own is not stepped, but says
/// the learning rate and holds what was pulled.
///
/// CONTRACT: where the service waits for everybody, the ranks agree on a verdict as they do under
/// `allreduce`, and all is as there, bit for bit: skipped steps, uneven data, clipping. Elsewhere
/// every rank decides for itself: a gradient that is not finite is told to the service as such (its
/// clock goes on) and backs off this rank's loss scale only; clipping is of the gradient that makes
/// the step; a rank without data leaves.
class OnService : public SyncStrategy {
 public:
  void start(Optimizer& optimizer) override;
  StepVerdict step(Optimizer& optimizer, const StepVerdict& verdict) override;
  /// Residuals are those after a push that was accepted; one that was late, dropped or not finite
  /// leaves no trace.
  void resolve(bool /*applied*/) override { context_->exchange->resolve(counted_); }
  void end() override;
  int64_t next_step(int64_t step, int64_t latest) override;
  /// Once this rank has ended: waits until all have, and is what the service has come to.
  void before_evaluation() override;
  void after_evaluation() override { own_.put_back(); }

  VerdictScope verdict_scope() const override {
    return waits_for_all() ? VerdictScope::all_ranks : VerdictScope::this_rank;
  }
  bool sums_gradients() const override { return false; }
  int64_t steps_between_sync() const override { return waits_for_all() ? 1 : 0; }
  double bytes_per_step() const override;
  void report(StrategyReport& report) override;
  /// A collective: between steps of all ranks.
  void state(StateIo& io) override;

 protected:
  explicit OnService(const ServiceOptions& options) : options_(options) {}

  /// Of the service's optimiser, given the worker's. UsageError for what does not go together.
  virtual optim::OptimizerOptions service_optimizer(const Optimizer& optimizer) const {
    return optimizer.options();
  }
  /// The dtype of what is pushed, before the wire.
  virtual DType pushed_dtype() const { return context_->params->all().grad.dtype(); }
  /// What is pushed of an applying verdict's gradient: itself, or something made of it, which
  /// changes `push` accordingly.
  virtual Tensor made_of_gradient(const Optimizer&, const StepVerdict&, Push&) {
    return context_->params->all().grad;
  }

  ServiceOptions options_;

 private:
  bool waits_for_all() const;
  bool gathers() const { return options_.quorum != ServiceOptions::kAtOnce; }
  Push make_push(const Optimizer& optimizer, const StepVerdict& verdict);

  std::unique_ptr<ParameterService> service_;
  Tensor wire_;           // staging, where the wire is of another dtype or divided
  int64_t clock_ = 0;     // of the gradient that is made now
  int64_t open_ = 0;      // the clock whose gradients are not too late; with a quorum
  bool counted_ = false;  // this step's push, by the service
  bool ended_ = false;
  KeptWeights own_;
};

}  // namespace lockstep::distributed
