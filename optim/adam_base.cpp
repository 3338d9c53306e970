#include "optim/adam_base.h"

#include "core/kernels/optim_step.h"

namespace lockstep::optim {

AdamBase::AdamBase(FlatView view, const OptimizerOptions& options, Decay decay)
    : Optimizer(std::move(view), options), decay_(decay), m_(moments()), v_(moments()) {}

void AdamBase::state(StateIo& io) {
  Optimizer::state(io);
  io.flat("m", m_, Fold::replicated);
  io.flat("v", v_, Fold::replicated);
}

void AdamBase::update(std::span<const Run> runs, float factor) {
  kernel::adam_step(weights(), m_, v_, view_.grad,
                    {.lr = options_.lr,
                     .factor = factor,
                     .beta1 = options_.beta1,
                     .beta2 = options_.beta2,
                     .eps = options_.eps,
                     .decoupled = decay_ == Decay::decoupled,
                     .copy = narrow_copy(),
                     .runs = runs});
}

std::vector<OptionDoc> adam_settings(std::string_view weight_decay) {
  return {{"beta1", "decay of the mean gradient (0.9)"},
          {"beta2", "decay of the mean squared gradient (0.999)"},
          {"eps", "added to the root (1e-8)"},
          {"weight_decay", weight_decay}};
}

}  // namespace lockstep::optim
