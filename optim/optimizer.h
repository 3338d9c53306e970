#pragma once
#include "optim/flat_params.h"
#include "optim/verdict.h"

#include "core/registry.h"
#include "core/state_io.h"

#include <memory>
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
};

/// Steps a flat view. The same class serves a worker, a shard of a parameter service and an outer
/// optimiser. `lr` may change between steps (schedules).
///
/// Every parameter has a step count of its own, as in PyTorch: one that nobody used in a step keeps
/// its value, moments and count.
class Optimizer {
 public:
  static constexpr std::string_view kKind = "optimizer";

  /// UsageError for options out of range, and unless the view's slices cover it without gaps.
  Optimizer(FlatView view, const OptimizerOptions& options);
  virtual ~Optimizer() = default;

  /// Applies verdict.factor while reading gradients, which stay as they are. Does nothing when
  /// !verdict.apply. Ends with publish().
  virtual void step(const StepVerdict& verdict);
  /// Learning rate, step counts; moments in derived classes.
  virtual void state(StateIo& io);

  /// The values that count: the fp32 master where there is one. Averages and pulls write here…
  FlatView authority() { return view_; }
  /// …then call this: parameters' versions go up, so that cached copies of them are made anew.
  void publish();

  void set_lr(double lr);
  double lr() const { return options_.lr; }
  const OptimizerOptions& options() const { return options_; }

 protected:
  /// Adjacent parameters that are stepped alike.
  struct Run {
    int64_t begin = 0, end = 0;  ///< elements of the view
    double weight_decay = 0;
    int64_t step = 0;  ///< 1 for a parameter's first update
    Tensor of(const Tensor& flat) const { return flat.slice(begin, end); }
  };
  /// One pass over a run; `factor` multiplies every gradient.
  virtual void update(const Run& run, float factor) = 0;

  FlatView view_;
  OptimizerOptions options_;

 private:
  std::vector<int64_t> steps_;  // updates so far, by slice of the view
};

using OptimizerRegistry = Registry<Optimizer, FlatView, const OptimizerOptions&>;

/// "sgd", "adam", "adamw", or a spec whose settings go before `options`:
/// "sgd:momentum=0.9,nesterov". Looked up in the registry; a UsageError lists what there is.
std::unique_ptr<Optimizer> make_optimizer(const Spec& spec, FlatView view,
                                          const OptimizerOptions& options);

}  // namespace lockstep::optim
