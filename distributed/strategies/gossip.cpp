// Gossip: every rank trains alone and after every step averages its weights with one or two others,
// at a distance that doubles from step to step: 1, 2, 4 … < n, 1 … (the exponential graph).
//   neighbours=1: push-sum, stochastic gradient push (Assran et al. 2019, arXiv:1811.10792). Rank r
//     has a numerator x and a weight v, at first 1; its model is z = x / v.
//         x ← x - lr·g(z)      keeps half of (x, v), sends half to rank r + h, adds what rank r - h
//         sent. Σ x and Σ v over ranks are conserved, and every z tends to Σ x / Σ v.
//   neighbours=2: symmetric, decentralised parallel SGD (Lian et al. 2017, arXiv:1705.09056) with
//     distances as above: x ← 1/3 · (x of r - h, r and r + h), or 1/2 · (x of r and r + h) where
//     both are the same rank. v stays 1.
// Brings P + 2 f32 a neighbour and step to a rank, in a send_recv each: the weights, v, and flags.
// A rank waits for its neighbours only; there are no synchronisation points. As every rank hears
// from one other a step, v is 1 throughout where it began so: it is there to be right, not fast.
//
// Every rank averages after every step, also one that it skipped itself, alone (a gradient that is
// not finite; no data): the messages are fixed by the program. Training ends when no rank had data
// in a window, which all ranks know, from the flags, after as many more as news takes to reach all,
// ⌈log2 n⌉: they end together. `--uneven stop` does as `active` does.
//
// The model that is evaluated and saved is Σ x / Σ v over ranks.
#include <bit>
#include <vector>

#include "core/kernels/elementwise.h"
#include "distributed/strategies/kept_weights.h"
#include "distributed/sync_strategy.h"

namespace lockstep::distributed {
namespace {

class Gossip final : public SyncStrategy {
 public:
  explicit Gossip(const Spec& spec)
      : neighbours_(spec.integer("neighbours", 1, {.min = 1, .max = 2})) {}

  void attach(SyncContext& context) override {
    SyncStrategy::attach(context);
    distances_ = std::bit_width(static_cast<unsigned>(context.comm->size() - 1));
    const int64_t p = context.params->all().numel();
    const auto message = [&] {
      Message m;
      m.all = zeros({p + 2}, DType::f32, context.params->all().param.device());
      m.weights = m.all.slice(0, p);
      m.extra = m.all.slice(p, p + 2);
      return m;
    };
    out_ = message();
    for (int64_t i = 0; i < neighbours_; ++i) in_.push_back(message());
  }

  StepVerdict judge(const StepVerdict& fresh) override {
    had_data_ = fresh.active_ranks > 0;
    if (distances_ == 0) return fresh;
    StepVerdict verdict = fresh;
    // The window of ⌈log2 n⌉ steps ago, of which all ranks know the same by now.
    const bool known = round_ >= distances_;
    verdict.active_ranks = known && (flags_ >> (distances_ - 1) & 1) == 0 ? 0 : 1;
    return verdict;
  }

  StepVerdict step(Optimizer& optimizer, const StepVerdict& verdict) override {
    if (!verdict.apply) return verdict;
    times(optimizer, v_);
    optimizer.step(verdict);
    times(optimizer, 1 / v_);
    return verdict;
  }

  void after_step(int64_t /*step*/) override {
    if (distances_ > 0) average(*context_->optimizer);
    ++round_;
  }

  void before_evaluation() override {
    if (distances_ == 0 || round_ == 0) return;
    Optimizer& optimizer = *context_->optimizer;
    own_.keep(optimizer);
    kernel::scale(out_.weights, optimizer.weights(), static_cast<float>(v_));
    put(out_.extra, v_, 0);
    context_->comm->all_reduce(out_.all, {.tag = {"model to evaluate", round_}})->wait();
    kernel::scale(optimizer.authority().param, out_.weights, 1 / out_.extra.data<float>()[0]);
    optimizer.publish();
  }
  void after_evaluation() override { own_.put_back(); }

  VerdictScope verdict_scope() const override { return VerdictScope::this_rank; }
  bool sends_gradients() const override { return false; }
  int64_t steps_between_sync() const override { return 0; }
  double bytes_per_step() const override {
    return distances_ == 0 ? 0 : static_cast<double>(neighbours_ * out_.all.bytes());
  }
  void state(StateIo& io) override {
    SyncStrategy::state(io);
    io.value("gossip.round", round_, Fold::replicated);
    io.value("gossip.v", v_, Fold::per_rank);
    io.value("gossip.flags", flags_, Fold::per_rank);
  }

 private:
  struct Message {
    Tensor all;             // f32 [P + 2]: what follows
    Tensor weights, extra;  // x; v and flags
  };

  static void put(const Tensor& extra, double v, int64_t flags) {
    float* x = extra.mutable_data<float>();
    x[0] = static_cast<float>(v);
    x[1] = static_cast<float>(flags);
  }

  // From z to x, and back; nothing while v is 1.
  void times(Optimizer& optimizer, double factor) {
    if (v_ == 1) return;
    const Tensor weights = optimizer.authority().param;
    kernel::scale(weights, weights, static_cast<float>(factor));
    optimizer.publish();
  }

  void average(Optimizer& optimizer) {
    const int n = context_->comm->size(), rank = context_->comm->rank();
    const int hop = 1 << (round_ % distances_);
    const int ahead = (rank + hop) % n, behind = (rank + n - hop) % n;
    const bool both = neighbours_ == 2 && ahead != behind;
    const Tensor weights = optimizer.authority().param;
    // The flags of the last windows, this one's first: bit k is set where a rank is known to have
    // had data k windows ago. f32 holds 24 of them.
    flags_ = (flags_ << 1 | (had_data_ ? 1 : 0)) & ((int64_t{1} << distances_) - 1);
    const auto share = static_cast<float>(both ? 1.0 / 3 : 0.5);
    kernel::scale(out_.weights, weights, static_cast<float>(share * v_));
    put(out_.extra, share * v_, flags_);
    const OpTag tag = {"gossip", round_};
    WorkPtr works[2] = {context_->comm->send_recv(in_[0].all, behind, out_.all, ahead, tag)};
    if (both) works[1] = context_->comm->send_recv(in_[1].all, ahead, out_.all, behind, tag);
    for (const WorkPtr& work : works)
      if (work) work->wait();
    // What it keeps is what it sends to each.
    double v = out_.extra.data<float>()[0];
    for (int i = 0; i < (both ? 2 : 1); ++i) {
      const Message& from = in_[static_cast<size_t>(i)];
      kernel::add_scaled(out_.weights, from.weights, 1);
      v += from.extra.data<float>()[0];
      flags_ |= static_cast<int64_t>(from.extra.data<float>()[1]);
    }
    if (neighbours_ == 2) v = 1;  // 3 · 1/3
    v_ = v;
    kernel::scale(weights, out_.weights, static_cast<float>(1 / v_));
    optimizer.publish();
  }

  int64_t neighbours_;
  int distances_ = 0;  // ⌈log2 n⌉
  int64_t round_ = 0;
  double v_ = 1;
  int64_t flags_ = 0;
  bool had_data_ = false;
  Message out_;
  std::vector<Message> in_;  // from behind, from ahead
  KeptWeights own_;
};

const Register<SyncStrategy, Gossip> registered{
    "gossip",
    "every rank trains alone and averages with one or two others after every step",
    {{"neighbours", "1: push-sum, 2: symmetric averages (1)"}}};

}  // namespace
}  // namespace lockstep::distributed
