#pragma once
#include "optim/verdict.h"

#include "autograd/table_gradient.h"

#include "core/kernels/table_step.h"
#include "core/registry.h"
#include "core/sparse_grad.h"
#include "core/state_io.h"

#include <memory>
#include <string>
#include <string_view>

namespace lockstep::optim {

/// Options of all of them; each uses those that its help names.
struct TableOptions {
  double lr = 0.01;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;  ///< decoupled, of rows that are stepped; see kernel::RowStep
};

/// Steps embedding tables by the rows that a window looked up, each once, whatever the number of
/// times it was looked up; a row whose gradient came out as 0 was looked up, too. Rows that were
/// not keep value and moments: they neither decay nor move by what is left of old gradients.
class TableOptimizer {
 public:
  static constexpr std::string_view kKind = "table optimizer";

  /// For tables [rows, D], f32. UsageError for options out of range.
  TableOptimizer(Tensor tables, const TableOptions& options);
  virtual ~TableOptimizer() = default;
  TableOptimizer(const TableOptimizer&) = delete;
  TableOptimizer& operator=(const TableOptimizer&) = delete;

  /// Applies verdict.factor while reading; the gradient stays as it is. Does nothing when
  /// !verdict.apply. A step without rows is a step.
  void step(const SparseGrad& gradient, const StepVerdict& verdict);
  /// Ends the window of `gradient`: coalesces and steps in one pass, with the bits of
  /// step(gradient.coalesce(), verdict). For when nothing has to see the coalesced gradient (its
  /// norm, other ranks).
  void step(autograd::TableGradient& gradient, const StepVerdict& verdict);
  /// Learning rate, steps; moments in derived classes. The tables are their owner's to keep.
  virtual void state(StateIo& io);

  void set_lr(double lr);
  double lr() const { return options_.lr; }

 protected:
  /// Calls the kernel.
  virtual void update(const kernel::RowGradients& gradient, const kernel::RowStep& step) = 0;
  /// f32 zeros, one for each element of the tables, or for each row.
  Tensor zeros_by_element() const { return zeros_like(tables_); }
  Tensor zeros_by_row() const { return zeros({tables_.size(0)}); }

  Tensor tables_;

 private:
  void apply(const kernel::RowGradients& gradient, const StepVerdict& verdict);
  TableOptions options_;
  int64_t steps_ = 0;
};

using TableOptimizerRegistry = Registry<TableOptimizer, const Tensor&, const TableOptions&>;

/// "sgd", "adagrad", "rowwise_adagrad", "lazy_adam", or a spec whose settings go before `options`:
/// "adagrad:eps=1e-6". A UsageError lists what there is.
std::unique_ptr<TableOptimizer> make_table_optimizer(const Spec& spec, const Tensor& tables,
                                                     const TableOptions& options);

}  // namespace lockstep::optim
