// Asynchronous SGD on a parameter service (Downpour: Dean et al. 2012, "Large Scale Distributed
// Deep Networks"; Hogwild: Recht et al. 2011, but here steps happen one at a time and no update is
// lost). A worker pushes its gradient when it is ready; the service steps with it at once; the
// worker pulls what there is then and goes on:
//     w ← w - η·g_r(w_then)       w_then: t versions ago, t being the staleness
// Moves P elements of the wire's dtype to the service and P parameters back, per step and rank; the
// service's link carries that of all ranks. Nobody waits for anybody but for
//     bound=s            stale synchronous parallel (Ho et al. 2013): nobody begins a clock (its
//                        own count of gradients) more than s ahead of the slowest. At s = 0 the
//                        service adds up a clock's gradients in rank order and steps once:
//                        `allreduce`, bit for bit
// What is done about staleness:
//     drop_older=τ       gradients more than τ versions behind are not applied
//     lr=inverse|sqrt    η/max(1, t) (Zhang et al. 2016, arXiv:1511.05950), or by its square root
//     compensate=λ       g + λ·g⊙g⊙(w - w_then) (DC-ASGD, Zheng et al. 2017, arXiv:1609.08326);
//                        the service keeps w_then of every worker: n·P more
//     push=share         η/n a push: n workers' gradients move w as far as one mean of theirs
//     momentum=corrected asynchrony of n workers acts as momentum 1 - 1/n on its own (Mitliagkas et
//                        al. 2016, arXiv:1605.09774): gradients come n - 1 versions late on
//                        average. Momentum m delays them by m/(1-m) steps; the service uses the m'
//                        for which both delays together make that, m'/(1-m') = m/(1-m) - (n-1), or
//                        0
//     momentum=local     every worker keeps a velocity of its own and pushes that
//     momentum=none      the service's optimiser has none
// Momentum is Adam's β1 there. A run depends on the order in which gradients come: on `virtual` it
// repeats bit for bit, in real time only under bound=0.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.h"
#include "core/kernels/elementwise.h"
#include "distributed/strategies/on_service.h"

namespace lockstep::distributed {
namespace {

ServiceOptions options_of(const Spec& spec) {
  ServiceOptions o;
  o.bound = spec.integer("bound", -1, {.min = 0});
  o.drop_older = spec.integer("drop_older", -1, {.min = 0});
  const std::string lr = spec.text("lr", "constant", {"constant", "inverse", "sqrt"});
  if (lr == "inverse") o.rate = ServiceOptions::Rate::inverse;
  if (lr == "sqrt") o.rate = ServiceOptions::Rate::sqrt;
  if (spec.text("push", "full", {"full", "share"}) == "share")
    o.share = ServiceOptions::Share::share;
  o.compensate = spec.number("compensate", 0, {.min = 0});
  if (o.bound == 0) o.quorum = ServiceOptions::kEverybody;
  return o;
}

// A sum of delays stays that of momentum m: see above.
double less_asynchrony(double m, int workers) {
  const double steps = m / (1 - m) - (workers - 1);
  return steps > 0 ? steps / (1 + steps) : 0;
}

class Async final : public OnService {
 public:
  explicit Async(const Spec& spec) : OnService(options_of(spec)) {
    const std::string momentum =
        spec.text("momentum", "server", {"server", "local", "corrected", "none"});
    if (momentum == "local") momentum_ = Momentum::local;
    if (momentum == "corrected") momentum_ = Momentum::corrected;
    if (momentum == "none") momentum_ = Momentum::none;
    if (options_.bound == 0) expect_nothing_about_staleness(spec);
    check(momentum_ != Momentum::local || options_.compensate == 0,
          "[async] '{}': compensate is made of a gradient, momentum=local pushes a velocity",
          spec.written());
  }

  void start(Optimizer& optimizer) override {
    OnService::start(optimizer);
    if (momentum_ == Momentum::local)
      velocity_ = zeros(context_->params->all().param.shape(), DType::f32,
                        context_->params->all().param.device());
  }
  std::string_view tables() const override { return options_.bound == 0 ? "gathered" : "async"; }
  void state(StateIo& io) override {
    OnService::state(io);
    if (velocity_.defined()) io.flat("velocity.local", velocity_, Fold::per_rank);
  }

 private:
  enum class Momentum { server, local, corrected, none };

  void expect_nothing_about_staleness(const Spec& spec) const {
    std::vector<std::string> idle;
    if (options_.drop_older >= 0) idle.emplace_back("drop_older");
    if (options_.rate != ServiceOptions::Rate::constant) idle.emplace_back("lr");
    if (options_.compensate != 0) idle.emplace_back("compensate");
    if (options_.share != ServiceOptions::Share::full) idle.emplace_back("push");
    if (momentum_ == Momentum::corrected) idle.emplace_back("momentum=corrected");
    if (momentum_ == Momentum::local) idle.emplace_back("momentum=local");
    check(
        idle.empty(),
        "[async] '{}': at bound=0 all gradients of a clock make one step and none is stale; leave "
        "out {}",
        spec.written(), fmt::join(idle, ", "));
  }

  optim::OptimizerOptions service_optimizer(const Optimizer& optimizer) const override {
    optim::OptimizerOptions o = optimizer.options();
    if (momentum_ == Momentum::server) return o;
    if (momentum_ == Momentum::local)
      check(optimizer.name() == "sgd" && o.momentum > 0 && o.dampening == 0 && !o.nesterov,
            "[async] momentum=local; expected the optimizer sgd with momentum, neither Nesterov's "
            "nor dampened, got {} with momentum {}",
            optimizer.name(), o.momentum);
    const bool kept = momentum_ == Momentum::corrected;
    const int workers = context_->comm->size();
    o.momentum = kept ? less_asynchrony(o.momentum, workers) : 0;
    o.beta1 = kept ? less_asynchrony(o.beta1, workers) : 0;
    if (o.momentum == 0) {
      o.nesterov = false;
      o.dampening = 0;
    }
    return o;
  }

  DType pushed_dtype() const override {
    return momentum_ == Momentum::local ? DType::f32 : OnService::pushed_dtype();
  }

  // u ← m·u + g of the parameters in use; pushed as a gradient that is a mean already. Decay is the
  // service's, which has the parameters.
  Tensor made_of_gradient(const Optimizer& optimizer, const StepVerdict& verdict,
                          Push& push) override {
    if (momentum_ != Momentum::local) return OnService::made_of_gradient(optimizer, verdict, push);
    const optim::FlatView& all = context_->params->all();
    const auto momentum = static_cast<float>(optimizer.options().momentum);
    for (size_t i = 0; i < all.slices.size(); ++i) {
      if (!verdict.used.empty() && verdict.used[i] == 0) continue;
      const Tensor u = velocity_.slice(all.slices[i].begin, all.slices[i].end);
      kernel::scale(u, u, momentum);
      kernel::add_scaled(u, all.grad.slice(all.slices[i].begin, all.slices[i].end), verdict.factor);
    }
    push.scale = push.factor = 1;
    push.max_norm = 0;
    return velocity_;
  }

  Momentum momentum_ = Momentum::server;
  Tensor velocity_;  // f32; of momentum=local
};

const Register<SyncStrategy, Async> registered{
    "async",
    "every gradient makes a step of a parameter service at once; nobody waits",
    {{"bound", "s, clocks that anybody may be ahead of the slowest; 0: allreduce (unbounded)"},
     {"drop_older", "versions behind, beyond which a gradient is dropped (unlimited)"},
     {"lr", "constant, inverse or sqrt: divided by the staleness or its root (constant)"},
     {"momentum", "server, local, corrected for what asynchrony adds, or none (server)"},
     {"compensate", "lambda of delay compensation (0)"},
     {"push", "full or share: by the learning rate or an n-th of it (full)"}}};

}  // namespace
}  // namespace lockstep::distributed
