#pragma once
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "autograd/table_gradient.h"
#include "core/registry.h"
#include "core/state_io.h"
#include "distributed/comm/communicator.h"
#include "distributed/strategy_report.h"
#include "optim/table_optimizer.h"

namespace lockstep::distributed {

/// What a table strategy works with; everything that it points to outlives it.
struct TableContext {
  Communicator* comm = nullptr;
  std::vector<int64_t> rows;  ///< of each table, the same on all ranks
  int64_t width = 0;
  /// The most rows that a window, or a batch of an evaluation, looks up in one table (batch ·
  /// largest bag · micro-batches): as many are kept on a rank that keeps no more.
  int64_t lookups = 0;
  /// Fills out [n, width] with the initial values of rows [first_row, first_row + n) of the flat
  /// tables.
  std::function<void(const Tensor& out, int64_t first_row)> initial;
  /// A new optimiser of these rows.
  std::function<std::unique_ptr<optim::TableOptimizer>(const Tensor& tables)> optimizer;
};

/// Decides what ranks exchange about embedding tables, as SyncStrategy does for dense parameters.
/// One self-registering file in distributed/tables each. Rows are told by their number in the flat
/// tensor of all tables. Call order: attach; then for every window fetch before each micro-batch,
/// and Reducer::finish_backward and step, which call the rest (Reducer::add_tables).
///
/// CONTRACT: a window's gradient is the sum over samples, as it is for dense parameters, and the
/// verdict's factor divides it. Every micro-batch is coalesced by itself, then micro-batches are
/// added in order, then ranks in order: so N ranks that share a step make that of one rank with N
/// micro-batches, bit for bit. A row is stepped once.
class TableSync {
 public:
  static constexpr std::string_view kKind = "table strategy";
  virtual ~TableSync() = default;

  /// Rows per table of the tensor that this rank looks up in: all of them, or as many as a window
  /// needs.
  virtual std::vector<int64_t> local_rows(const TableContext& context) const {
    return context.rows;
  }
  /// Whole copies of the tables, and of what is kept for their rows, that so many ranks hold.
  virtual int64_t copies(int64_t ranks) const { return ranks; }
  /// Whether ranks exchange gradients of the same window: they must share a verdict then.
  virtual bool together() const { return true; }

  /// Once, on all ranks: SystemError(communication) on all of them where tables differ. `weight`
  /// [Σ local_rows, D] holds the initial values where it holds all rows, else anything; `gradient`
  /// is what backward fills.
  void attach(const TableContext& context, const Tensor& weight, autograd::TableGradient& gradient);

  /// Before the forward pass of every micro-batch, and before its Reducer::micro(), on all ranks:
  /// on those without data, too, with undefined tensors. Makes the rows current that the
  /// micro-batch looks up; returns the rows to give to the model: the same, or places within
  /// local_rows. Tensors as in kernel::Bags. UsageError naming table, sample and row for one out of
  /// range, and for more than `lookups` rows of a table.
  virtual Tensor fetch(const Tensor& rows, const Tensor& offsets) = 0;
  /// Ends the window, and exchanges what must be exchanged. Returns whether this rank's own
  /// gradient was finite, which is looked at before any sum over ranks.
  virtual bool exchange() = 0;
  /// Σ squares of the gradient that step() applies, each row once whoever holds it, the same on all
  /// ranks; 0 where tables go their own way. A collective where together().
  virtual double sum_of_squares() = 0;
  /// Steps, where the verdict applies; forgets the gradient.
  virtual void step(const optim::StepVerdict& verdict) = 0;
  virtual void set_lr(double lr) = 0;

  /// In between, fetch() is for looking only: at the tables as they are now, in no modelled time.
  /// Where together(), all ranks call it, and as often.
  void before_evaluation() { look(true); }
  void after_evaluation() { look(false); }

  /// Numbers rows_touched and unique_row_bytes (what travels of rows between this rank and others),
  /// means over this rank's steps; where others step meanwhile also collision_rate, the share of
  /// row updates that came after another one had been made since the row was fetched, and the
  /// histogram row_staleness: how many had been. By one rank alone; waits for nobody.
  virtual void report(StrategyReport& report) = 0;
  /// Tables and optimiser, between steps of all ranks.
  virtual void state(StateIo& io) = 0;

 protected:
  /// The rest of attach().
  virtual void start() = 0;
  /// An evaluation begins, or is over.
  virtual void look(bool only) { looking_ = only; }

  Communicator& comm() const { return *context_.comm; }
  int64_t width() const { return context_.width; }
  /// Σ rows. At most 2^31 - 1 where they are added up with those of others.
  int64_t flat_rows() const { return flat_rows_; }

  TableContext context_;
  Tensor weight_;
  autograd::TableGradient* gradient_ = nullptr;
  bool looking_ = false;

 private:
  int64_t flat_rows_ = 0;
};

/// "gathered", "sharded", "async", "hogwild"; a UsageError lists what there is.
std::unique_ptr<TableSync> make_table_sync(const Spec& spec);

}  // namespace lockstep::distributed
