// Adam (Kingma & Ba 2015) on the rows that were looked up. Lazy: dense Adam moves every row at
// every step, by what is left of its old gradients; here the moments of a row change only when it
// is looked up, and between such steps it stands still. Bias is corrected by the number of steps of
// the optimiser, not of the row.
#include "optim/table_optimizer.h"

namespace lockstep::optim {
namespace {

class LazyAdam final : public TableOptimizer {
 public:
  LazyAdam(const Spec&, const Tensor& tables, const TableOptions& options)
      : TableOptimizer(tables, options), m_(zeros_by_element()), v_(zeros_by_element()) {}

  void state(StateIo& io) override {
    TableOptimizer::state(io);
    io.flat("m", m_, Fold::replicated);
    io.flat("v", v_, Fold::replicated);
  }

 private:
  void update(const kernel::RowGradients& gradient, const kernel::RowStep& step) override {
    kernel::table_adam(tables_, m_, v_, gradient, step);
  }

  Tensor m_, v_;  // [rows, D]
};

const Register<TableOptimizer, LazyAdam, const Tensor&, const TableOptions&> registered{
    "lazy_adam",
    "Adam whose moments rest while a row is not looked up",
    {{"beta1", "decay of the mean gradient (0.9)"},
     {"beta2", "decay of the mean squared gradient (0.999)"},
     {"eps", "added to the root (1e-8)"},
     {"weight_decay", "of the rows that are stepped, decoupled (0)"}}};

}  // namespace
}  // namespace lockstep::optim
