// DiLoCo (Douillard et al. 2023, arXiv:2311.08105, algorithm 1): local rounds whose average change
// is the gradient of an outer step with Nesterov momentum, from the weights θ that the round began
// with:
//     Δ = 1/n · Σ_r (θ - w_r)      u ← μ·u + Δ      θ ← θ - lr_outer·(Δ + μ·u)      w_r ← θ
// (without Nesterov θ ← θ - lr_outer·u). The outer learning rate is outside u, so it may change
// from round to round: outer_decay. With outer_lr=1 and outer_momentum=0 it is local_sgd. Moves
// 2·P·(n-1)/n f32 per rank at the end of a round of H steps, hence 2·P·(n-1)/(n·H) a step; nothing
// in between. In the warm-up it moves gradients, as allreduce does. θ and u are f32 and equal on
// all ranks; they are state, so a run may stop within a round. What counts as a step, and what
// happens to the inner moments: see LocalRounds.
#include "core/kernels/elementwise.h"
#include "distributed/strategies/local_rounds.h"

namespace lockstep::distributed {
namespace {

class DiLoCo final : public LocalRounds {
 public:
  explicit DiLoCo(const Spec& spec)
      : LocalRounds(spec),
        decay_(spec.number("outer_decay", 1, {.min = 0})),
        options_{.lr = spec.number("outer_lr", 0.7, {.min = 0}),
                 .momentum = spec.number("outer_momentum", 0.9, {.min = 0}),
                 .nesterov = spec.flag("nesterov", true)} {
    if (options_.momentum == 0) options_.nesterov = false;  // the same without a velocity
  }

  void attach(SyncContext& context) override {
    SyncStrategy::attach(context);
    const optim::FlatView& all = context.params->all();
    begun_ = zeros(all.param.shape(), DType::f32, all.param.device());
    change_ = zeros_like(begun_);
    outer_ = optim::make_optimizer(
        "sgd", {.param = begun_, .grad = change_, .slices = context.params->slices()}, options_);
  }

  void state(StateIo& io) override {
    LocalRounds::state(io);
    io.flat("diloco.begun", begun_, Fold::replicated);
    PrefixedState outer(io, "diloco.outer.");
    outer_->state(outer);
  }

 private:
  void part(Optimizer& optimizer) override { kernel::cast(begun_, optimizer.weights()); }

  void meet(Optimizer& optimizer) override {
    const Tensor weights = optimizer.authority().param;
    kernel::scale(change_, weights, -1);
    kernel::add_scaled(change_, begun_, 1);
    context_->comm->all_reduce(change_, {.op = ReduceOp::mean, .tag = {"change", 0}})->wait();
    outer_->step(StepVerdict());
    outer_->set_lr(outer_->lr() * decay_);
    kernel::cast(weights, begun_);
    optimizer.publish();
  }

  double decay_;
  optim::OptimizerOptions options_;
  Tensor begun_, change_;             // f32: θ; θ - w, then its mean
  std::unique_ptr<Optimizer> outer_;  // steps θ by Δ
};

const Register<SyncStrategy, DiLoCo> registered{
    "diloco", "local rounds; an outer Nesterov step on their average change",
    LocalRounds::settings({{"outer_lr", "of the outer step (0.7)"},
                           {"outer_momentum", "of the outer step (0.9)"},
                           {"nesterov", "on: look ahead along the outer velocity (on)"},
                           {"outer_decay", "outer_lr is multiplied by it after a round (1)"}})};

}  // namespace
}  // namespace lockstep::distributed
