// Stochastic gradient descent with (Nesterov) momentum, in PyTorch's form (Sutskever et al. 2013):
//     g ← factor·g + decay·w      u ← momentum·u + (1 - dampening)·g, at first u ← g
//     w ← w - lr·u                with Nesterov w ← w - lr·(g + momentum·u)
#include "optim/optimizer.h"

#include "core/kernels/optim_step.h"

namespace lockstep::optim {
namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(const Spec&, FlatView view, const OptimizerOptions& options)
      : Optimizer(std::move(view), options) {
    check(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
          "[optim.sgd] Nesterov; expected momentum above 0 and dampening 0, got {} and {}",
          options.momentum, options.dampening);
    if (options.momentum > 0) velocity_ = moments();
  }

  void state(StateIo& io) override {
    Optimizer::state(io);
    if (velocity_.defined()) io.flat("velocity", velocity_, Fold::replicated);
  }

 private:
  void update(std::span<const Run> runs, float factor) override {
    for (const Run& run : runs) {
      const auto part = [&](const Tensor& flat) {
        return flat.defined() ? flat.slice(run.begin, run.end) : Tensor();
      };
      kernel::sgd_step(part(weights()), part(velocity_), part(view_.grad),
                       {.lr = options_.lr,
                        .factor = factor,
                        .momentum = options_.momentum,
                        .dampening = options_.dampening,
                        .weight_decay = run.weight_decay,
                        .nesterov = options_.nesterov,
                        .first = run.step == 1,
                        .copy = part(narrow_copy())});
    }
  }

  Tensor velocity_;  // undefined without momentum
};

const Register<Optimizer, Sgd, FlatView, const OptimizerOptions&> registered{
    "sgd",
    "stochastic gradient descent, with momentum if asked for",
    {{"momentum", "of the velocity (0)"},
     {"dampening", "of the gradient as it enters the velocity (0)"},
     {"nesterov", "on: look ahead along the velocity (off)"},
     {"weight_decay", "on matrices, added to the gradient (0)"}}};

}  // namespace
}  // namespace lockstep::optim
