#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "core/registry.h"
#include "core/state_io.h"
#include "distributed/bucket.h"
#include "distributed/exchange.h"
#include "distributed/strategy_report.h"
#include "optim/optimizer.h"

namespace lockstep::distributed {

using optim::Optimizer;
using optim::StepVerdict;

/// What a strategy works with; lives as long as the reducer that attached it.
struct SyncContext {
  Communicator* comm = nullptr;
  optim::FlatParams* params = nullptr;
  std::span<GradientBucket> buckets;
  Exchange* exchange = nullptr;    ///< sums gradients; parameters and the like go through `comm`
  Optimizer* optimizer = nullptr;  ///< known from the first step() or evaluation on
};

/// Whose gradients one verdict covers. `all_ranks`: one small exchange a step; a non-finite
/// gradient anywhere skips the step everywhere, and the gradient, a sum over ranks, is divided by
/// the weight of all. `this_rank`: no exchange; the gradient is this rank's alone and is divided by
/// its own weight, every rank decides for itself whether to step, and when to end. `meeting`: as
/// this_rank, but the ranks agree on whether training ends, by the data that they had in all
/// windows since the meeting before.
enum class VerdictScope { all_ranks, meeting, this_rank };

/// Decides what ranks exchange, and when. One self-registering file in distributed/strategies each;
/// every hook is optional. See docs/how-to/add-a-strategy.md.
class SyncStrategy {
 public:
  static constexpr std::string_view kKind = "strategy";
  virtual ~SyncStrategy() = default;

  /// Once, when the reducer is built; parameters are equal on all ranks by then.
  virtual void attach(SyncContext& context) { context_ = &context; }
  /// Once, on all ranks, when the optimiser is known: before state() and the first step().
  virtual void start(Optimizer&) {}
  /// A bucket's gradient is complete on this rank. Called once per bucket and window, in index
  /// order on all ranks, mostly in the middle of backward. May start a collective and leave it in
  /// bucket.work.
  virtual void on_bucket(GradientBucket&) {}
  /// Backward is over on this rank, all buckets were handed over and their work has finished.
  virtual void before_step() {}
  /// What the ranks agreed on about this window's gradient, or this rank did alone. Returns the
  /// verdict of the gradient that the step applies, which the flat buffer holds from here on:
  /// another one, where the strategy keeps gradients for later. When to end goes by `active_ranks`,
  /// which stays as it is unless the strategy knows better than a rank that decides alone.
  virtual StepVerdict judge(const StepVerdict& fresh) { return fresh; }
  /// Makes the step. Asynchronous strategies push and pull here instead. Returns what became of it:
  /// the verdict, not finite and not applied where the gradient was lost on its way.
  virtual StepVerdict step(Optimizer& optimizer, const StepVerdict& verdict) {
    if (verdict.apply) optimizer.step(verdict);
    return verdict;
  }
  /// Commit or discard what this step would have changed (residuals): a skipped step leaves no
  /// trace.
  virtual void resolve(bool applied) { context_->exchange->resolve(applied); }
  /// After every optimiser step, applied or not; `step` counts from 0.
  virtual void after_step(int64_t /*step*/) {}
  /// Between steps, on all ranks, where they may hold different parameters: puts the model that is
  /// evaluated and saved into the optimiser's weights, the same bits on all ranks.
  virtual void before_evaluation() {}
  /// Puts this rank's own back. No communication.
  virtual void after_evaluation() {}

  /// The step that this rank makes after `step`: another than step + 1, at most `latest`, where it
  /// has been left behind and leaves some out. Not asked by who makes them all.
  virtual int64_t next_step(int64_t step, int64_t /*latest*/) { return step + 1; }

  /// Of the window that is open, or the next one; the same on all ranks at the same step. Changes
  /// in after_step() only.
  virtual VerdictScope verdict_scope() const { return VerdictScope::all_ranks; }
  /// Whether, under a shared verdict, the flat buffer holds the sum over ranks once backward has
  /// finished, so that a rank can tell its norm; else it is the strategy's step that clips.
  virtual bool sums_gradients() const { return true; }
  /// Whether gradients are what it sends, so that they can be compressed.
  virtual bool sends_gradients() const { return true; }
  /// Whether it keeps what was not sent, as the exchange may: then micro-batches must tell their
  /// loss scale.
  virtual bool keeps_residuals() const { return false; }
  /// Whether it can be made to step with this optimiser, by its registered name.
  virtual bool steps_with(std::string_view /*optimizer*/) const { return true; }
  /// All ranks hold the same parameters, bit for bit, after every how many steps; 0: the strategy
  /// declares that it has no synchronisation points.
  virtual int64_t steps_between_sync() const { return 1; }
  /// Whether its steps are those of one rank with the batches of all, bit for bit.
  virtual bool synchronous() const { return steps_between_sync() == 1; }
  /// The table strategy (TableSync) that a model with embedding tables is trained with; empty:
  /// none goes with it.
  virtual std::string_view tables() const { return {}; }
  /// Gradients that were agreed on and not applied yet. Those of a run's end never are.
  virtual int64_t waiting() const { return 0; }
  /// An upper bound of what it brings to a rank from others per step, averaged; without what the
  /// verdict exchanges.
  virtual double bytes_per_step() const { return 0; }
  /// This rank makes no more steps, although others may.
  virtual void end() {}
  /// Adds what a run should tell. Called by one rank or more, after the first step.
  virtual void report(StrategyReport&) {}
  /// What must survive a stop besides parameters and optimiser. Call the base's, which is the
  /// exchange's.
  virtual void state(StateIo& io) { context_->exchange->state(io); }

 protected:
  SyncContext* context_ = nullptr;
};

/// What summing all gradients by the exchange, bucket by bucket, brings to a rank at most:
/// 2·(n-1)/n of their elements, in the wire's dtype, or codes.
double all_reduce_bytes(const SyncContext& context);
/// The same of one all-reduce of so many bytes.
double all_reduce_bytes(const SyncContext& context, int64_t bytes);

/// "allreduce", "local_sgd:every=8": looked up in the registry; a UsageError lists what there is.
std::unique_ptr<SyncStrategy> make_strategy(const Spec& spec);

}  // namespace lockstep::distributed
