#pragma once
#include <memory>
#include <span>

#include "distributed/buffer_sync.h"
#include "distributed/exchange.h"
#include "distributed/sync_strategy.h"
#include "distributed/tables/table_sync.h"
#include "optim/flat_params.h"
#include "optim/grad_scaler.h"

namespace lockstep::distributed {

/// Parameters that a rank with data did not use in a window. `zero`: they count as zero there; one
/// that no rank used is not stepped at all. `error`: a UsageError on all ranks naming them. A rank
/// that decides alone (VerdictScope) speaks for itself only.
enum class Unused { zero, error };

/// What to do when some ranks run out of batches before others. CONTRACT: `active` divides by the
/// weight that there really is; `initial` counts an absent rank with its nominal weight, as if its
/// gradient were zero; `stop` ends at the shortest: no step as soon as a rank has nothing. Where
/// ranks agree at meetings only (VerdictScope), they learn of it there: `stop` ends instead of
/// the first step with a meeting by which a rank had nothing.
enum class Uneven { stop, initial, active };

/// The classic mistakes, on purpose. `sum`: not divided by the number of ranks. `no_division`: not
/// divided by the number of micro-batches. `reduce_running`: the running sum is reduced after every
/// micro-batch, so that early ones are counted once per rank again.
enum class Teach { none, sum, reduce_running, no_division };

struct ReducerOptions {
  int64_t bucket_bytes = 1 << 20;        ///< a bucket ends when it holds as many
  int64_t first_bucket_bytes = 1 << 18;  ///< the first one: starts communicating early
  Unused unused = Unused::zero;
  Uneven uneven = Uneven::active;
  Teach teach = Teach::none;
  ExchangeOptions exchange = {};  ///< the wire of gradients
};

/// `now`: the last micro-batch of a window; buckets leave while its backward runs.
enum class Sync { later, now };
struct MicroOptions {
  Sync sync = Sync::now;
  double weight = 1;  ///< tokens or samples in the loss sum
  /// What gradients carry, the scaler's scale(): residuals of compression are kept without it.
  double scale = 1;
  /// `no`: an empty micro-batch that is run only since other ranks wait in it (SyncBN); a rank that
  /// has no others counts as one without data.
  enum class Samples { no, yes } samples = Samples::yes;
};

/// Turns "this parameter's gradient is complete" into "this bucket may leave", in the same order on
/// all ranks, and a window of micro-batches into one verdict. A window is: micro() once or more
/// (none on a rank without data), finish_backward, clip, step, finish_step.
///
///     { auto micro = reducer.micro({.sync = Sync::now, .weight = tokens});
///       backward(scaler.scale(loss_sum)); }
///     StepVerdict verdict = reducer.finish_backward(scaler);
///     if (reducer.exhausted(verdict)) break;
///     verdict.clip(reducer.grad_norm(verdict), max_norm);
///     reducer.step(optimizer, verdict);
///     reducer.finish_step(step);
///
/// Parameters and gradients may be of any floating dtype. NaN and infinities are looked for in the
/// gradient as backward left it, before a reduction, a cast or a code can hide them, and in sums
/// that a wire of two bytes may have overflowed: found by one rank, all who share its verdict skip
/// the step.
///
/// Guards (UsageError): a bucket reduced twice in a window, backward outside micro(), a parameter
/// replaced in the module after FlatParams was built, micro-batches of another scale than the
/// scaler's where residuals are kept.
class Reducer {
 public:
  /// All ranks compare names, shapes, order and dtypes of their parameters, the options and the
  /// buckets: SystemError(communication) on all of them, showing the first difference. Then all get
  /// rank 0's values. Build the optimiser afterwards. Everything passed must outlive the reducer.
  /// UsageError for Teach::reduce_running where the exchange divides or compresses: its sums meet
  /// again; for compression under a strategy that sends no gradients.
  Reducer(optim::FlatParams& params, Communicator& comm, SyncStrategy& strategy,
          const ReducerOptions& options = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Embedding tables that are trained with the parameters, attached already: their gradients take
  /// part in the verdict and the norm, and step() steps them. Before the first window, on all
  /// ranks. UsageError where they are summed over ranks and the strategy lets ranks go apart.
  void add_tables(TableSync& tables);

  /// Buffers of the model, made equal over ranks while evaluating() lives. On all ranks. Where
  /// ranks go apart (steps_between_sync() of 0) only once they have ended: before, a rank evaluates
  /// with its own.
  void add_buffers(BufferSync& buffers);

  /// RAII around one forward and backward.
  class Micro {
   public:
    ~Micro();
    Micro(const Micro&) = delete;
    Micro& operator=(const Micro&) = delete;

   private:
    friend class Reducer;
    explicit Micro(Reducer& reducer) : reducer_(reducer) {}
    Reducer& reducer_;
  };
  [[nodiscard]] Micro micro(const MicroOptions& options = {});

  /// Ends the window: zeroes gradients that nobody wrote, hands over what never became ready,
  /// waits, and agrees with all ranks on the verdict. On a rank without data the whole window: it
  /// takes part with zeros and weight 0. UsageError on all ranks naming them if their scales
  /// differ.
  StepVerdict finish_backward(const optim::GradScaler& scaler);
  /// Whether training ends here: no rank had data, or a rank had none under Uneven::stop; in any
  /// window since the ranks last met. The verdict does not apply then.
  bool exhausted(const StepVerdict& verdict);
  /// L2 norm of the averaged gradient, the same on all ranks after a reduction; works for values
  /// whose squares overflow f32. Includes tables, each row once, that all ranks step together: a
  /// collective then, if the verdict applies.
  double grad_norm(const StepVerdict& verdict) const;
  /// Tells the strategy which optimiser will step: on all ranks, before its state is asked for.
  /// The first step does it, too.
  void start(Optimizer& optimizer);
  /// Asks the strategy to make the step. Returns the verdict to go on with: a service may have
  /// found that a wire of two bytes overflowed, which skips the step after all.
  StepVerdict step(Optimizer& optimizer, const StepVerdict& verdict);
  /// Ends step number `step` (from 0).
  void finish_step(int64_t step);
  /// The step to make after `step`, which has ended: step + 1, or a later one up to `latest` where
  /// this rank has been left behind (backup) and the steps between are over. A loop may make them
  /// all the same.
  int64_t next_step(int64_t step, int64_t latest);
  /// This rank makes no more steps; exhausted() says so, too. Others do not wait for it where the
  /// strategy lets ranks go apart.
  void end();

  /// While it lives, the optimiser's weights and the buffers are the model to evaluate and to save,
  /// the same bits on all ranks, and what tables fetch is for looking at only; then all is this
  /// rank's own again.
  /// Between steps, on all ranks; nothing where they agree anyway.
  class Evaluating {
   public:
    ~Evaluating();
    Evaluating(const Evaluating&) = delete;
    Evaluating& operator=(const Evaluating&) = delete;

   private:
    friend class Reducer;
    Evaluating(Communicator& comm, SyncStrategy& strategy, TableSync* tables, BufferSync* buffers);
    SyncStrategy& strategy_;
    TableSync* tables_;
    BufferSync* buffers_;
  };
  [[nodiscard]] Evaluating evaluating(Optimizer& optimizer);

  /// Who looks at gradients on their way, from the next window on; null: nobody.
  void observe(GradientObserver* observer);

  std::span<const GradientBucket> buckets() const;
  Communicator& comm() const;
  /// What became of gradients on their way.
  const Exchange& exchange() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::distributed
