#pragma once
#include <vector>

#include "distributed/strategies/kept_weights.h"
#include "distributed/sync_strategy.h"

namespace lockstep::distributed {

/// What local SGD and DiLoCo share. Every rank trains alone, with gradients divided by its own
/// weight, and neither waits for others nor hears of them; after every `every` steps the ranks
/// meet. The first `warmup` steps are `allreduce`'s.
///
/// CONTRACT: within a round every rank decides alone, and every step counts for all, so that they
/// meet at the same step. A rank whose gradient is not finite, or that has no data, keeps its
/// parameters in that step and has the same say as the others when they meet. It backs off its own
/// loss scale only: scales may differ from the first round on. Meetings agree on whether training
/// ends: no rank had data in the whole round, or (Uneven::stop) one had none in some window. The
/// round's last step is not made then, and the ranks stay as they are within a round. In the
/// warm-up a step counts that all ranks agree on: somebody had data and all gradients were finite.
///
/// The inner optimiser's moments (momentum; m and v) stay each rank's own over a meeting; with
/// moments=average they are averaged, too, with moments=reset they and the step counts, which bias
/// corrections go by, start from zero. Within a round, the model that is evaluated and saved is the
/// mean of the ranks' weights.
class LocalRounds : public SyncStrategy {
 public:
  void on_bucket(GradientBucket& bucket) override;
  StepVerdict judge(const StepVerdict& fresh) override;
  StepVerdict step(Optimizer& optimizer, const StepVerdict& verdict) override;
  void after_step(int64_t step) override;
  void before_evaluation() override;
  void after_evaluation() override { own_.put_back(); }

  VerdictScope verdict_scope() const override {
    if (warming_up()) return VerdictScope::all_ranks;
    return ends_round() ? VerdictScope::meeting : VerdictScope::this_rank;
  }
  int64_t steps_between_sync() const override { return every_; }
  bool sends_gradients() const override { return false; }
  bool synchronous() const override { return false; }  // sums are divided in another order
  /// Of the phase it is in: a warm-up step moves as much as a meeting.
  double bytes_per_step() const override;
  void state(StateIo& io) override;

  static std::vector<OptionDoc> settings(std::vector<OptionDoc> more = {});

 protected:
  explicit LocalRounds(const Spec& spec);

  /// All ranks are about to leave the same weights. Called again if nothing came of it.
  virtual void part(Optimizer&) {}
  /// The end of a round: makes the ranks' weights equal and publishes them.
  virtual void meet(Optimizer& optimizer) = 0;

 private:
  enum class Moments { local, average, reset };

  bool warming_up() const { return steps_ < warmup_; }
  bool within_round() const { return !warming_up() && (steps_ - warmup_) % every_ != 0; }
  // The step to come is the last one of a round.
  bool ends_round() const { return !warming_up() && (steps_ - warmup_ + 1) % every_ == 0; }
  void find_moments(Optimizer& optimizer);
  void carry_moments_over();

  int64_t every_, warmup_;
  Moments moments_;
  int64_t steps_ = 0;   // that counted
  bool counts_ = true;  // the step that is being made
  // Of the optimiser, whose state() shows them once; they live as long as it does.
  Optimizer* known_ = nullptr;
  std::vector<Tensor> moment_buffers_;
  std::vector<int64_t*> step_counts_;
  KeptWeights own_;
};

}  // namespace lockstep::distributed
