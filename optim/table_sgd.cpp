// Stochastic gradient descent on the rows that were looked up: w ← w·(1 - lr·decay) - lr·g.
#include "optim/table_optimizer.h"

namespace lockstep::optim {
namespace {

class TableSgd final : public TableOptimizer {
 public:
  TableSgd(const Spec&, const Tensor& tables, const TableOptions& options)
      : TableOptimizer(tables, options) {}

 private:
  void update(const kernel::RowGradients& gradient, const kernel::RowStep& step) override {
    kernel::table_sgd(tables_, gradient, step);
  }
};

const Register<TableOptimizer, TableSgd, const Tensor&, const TableOptions&> registered{
    "sgd",
    "stochastic gradient descent, without state",
    {{"weight_decay", "of the rows that are stepped, decoupled (0)"}}};

}  // namespace
}  // namespace lockstep::optim
