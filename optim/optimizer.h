#pragma once
#include <memory>
#include <string>

#include "optim/flat_params.h"
#include "optim/verdict.h"

#include "core/state_io.h"

namespace lockstep::optim {

/// Options of all optimisers; each uses those that it names in `--optimizer help`.
struct OptimizerOptions {
  double lr = 1e-3;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.01;  ///< on slices marked `decay` only
};

/// Steps a flat view. The same class serves a worker, a shard of a parameter service and an outer
/// optimiser. `lr` may change between steps (schedules).
class Optimizer {
 public:
  Optimizer(FlatView view, const OptimizerOptions& options) : view_(std::move(view)), options_(options) {}
  virtual ~Optimizer() = default;

  /// Applies verdict.factor while reading gradients; slices that nobody used are left exactly as
  /// they are, moments and step counts included. Does nothing when !verdict.apply.
  virtual void step(const StepVerdict& verdict) = 0;
  /// Moments, step counts.
  virtual void state(StateIo& io) = 0;

  /// The values that count: the fp32 master where there is one. Averages and pulls write here…
  FlatView authority() { return view_; }
  /// …then call this: re-casts, bumps versions, drops cached copies of the weights.
  void publish();

  void set_lr(double lr) { options_.lr = lr; }
  double lr() const { return options_.lr; }
  const OptimizerOptions& options() const { return options_; }

 protected:
  FlatView view_;
  OptimizerOptions options_;
};

/// "sgd", "adam", "adamw": looked up in the registry; a UsageError lists what there is.
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, FlatView view, const OptimizerOptions& options);

}  // namespace lockstep::optim
