#pragma once
#include "optim/flat_params.h"
#include "optim/verdict.h"

#include "core/kernels/optim_step.h"
#include "core/registry.h"
#include "core/state_io.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::optim {

/// Options of all optimisers; each uses those that it names in `--optimizer help`.
struct OptimizerOptions {
  double lr = 1e-3;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;  ///< on slices marked `decay` only; users of AdamW usually want 0.01
  /// Parameters narrower than f32 are stepped in an f32 copy, which loses no small update; false:
  /// they are stepped themselves (in f32, rounded back).
  bool master = true;
};

/// Steps a flat view. The same class serves a worker, a shard of a parameter service and an outer
/// optimiser. `lr` may change between steps (schedules).
///
/// Every parameter has a step count of its own, as in PyTorch: one that nobody used in a step keeps
/// its value, moments, master and count.
///
/// The master weights (Micikevicius et al. 2018, arXiv:1710.03740) start from the parameters as
/// they are when the optimiser is made: broadcast or load those before.
class Optimizer {
 public:
  static constexpr std::string_view kKind = "optimizer";

  /// UsageError for options out of range, and unless the view's slices cover it without gaps.
  Optimizer(FlatView view, const OptimizerOptions& options);
  virtual ~Optimizer() = default;

  /// Applies verdict.factor while reading gradients, which stay as they are. Does nothing when
  /// !verdict.apply. What was stepped is published.
  virtual void step(const StepVerdict& verdict);
  /// Learning rate, step counts, master; moments in derived classes. Parameters without a master
  /// are their owner's to keep; those with one follow from it by publish().
  virtual void state(StateIo& io);

  /// The values that count: the f32 master where there is one (a view without the module's
  /// parameters, which do not see writes), else the parameters. Averages and pulls write here…
  FlatView authority();
  /// …then call this: the master is rounded into the parameters, whose versions go up, so that
  /// cached copies of them are made anew.
  void publish();
  /// authority().param: element i is element offset + i of the flat buffer. What a model file
  /// saves.
  const Tensor& weights() const { return master_.defined() ? master_ : view_.param; }

  /// One of the same class that steps another view: a service's, an outer one. UsageError unless
  /// this one was made by make_optimizer().
  std::unique_ptr<Optimizer> another(FlatView view, const OptimizerOptions& options) const;
  /// "sgd": as registered; empty unless made by make_optimizer().
  const std::string& name() const { return name_; }

  void set_lr(double lr);
  double lr() const { return options_.lr; }
  const OptimizerOptions& options() const { return options_; }

 protected:
  /// Adjacent parameters that are stepped alike: elements of the view.
  using Run = kernel::StepRun;
  /// Steps those elements of weights(); `factor` multiplies every gradient. Stores the result in
  /// narrow_copy() too, where that is defined.
  virtual void update(std::span<const Run> runs, float factor) = 0;
  /// The parameters, where a master is stepped.
  Tensor narrow_copy() const { return master_.defined() ? view_.param : Tensor(); }
  /// f32 zeros, one for each weight.
  Tensor moments() const;

  FlatView view_;
  OptimizerOptions options_;

 private:
  friend std::unique_ptr<Optimizer> make_optimizer(const Spec& spec, FlatView view,
                                                   const OptimizerOptions& options);
  std::string name_;
  Tensor master_;               // undefined: view_.param itself is stepped
  std::vector<int64_t> steps_;  // updates so far, by slice of the view
  std::vector<Run> runs_;       // of a step
};

using OptimizerRegistry = Registry<Optimizer, FlatView, const OptimizerOptions&>;

/// "sgd", "adam", "adamw", or a spec whose settings go before `options`:
/// "sgd:momentum=0.9,nesterov". Looked up in the registry; a UsageError lists what there is.
std::unique_ptr<Optimizer> make_optimizer(const Spec& spec, FlatView view,
                                          const OptimizerOptions& options);

}  // namespace lockstep::optim
