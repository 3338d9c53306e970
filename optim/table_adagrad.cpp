// Adagrad (Duchi, Hazan & Singer 2011) on the rows that were looked up, a sum for each element:
//     s ← s + g²      w ← w·(1 - lr·decay) - lr·g / (√s + eps)
#include "optim/table_optimizer.h"

namespace lockstep::optim {
namespace {

class TableAdagrad final : public TableOptimizer {
 public:
  TableAdagrad(const Spec&, const Tensor& tables, const TableOptions& options)
      : TableOptimizer(tables, options), squares_(zeros_by_element()) {}

  void state(StateIo& io) override {
    TableOptimizer::state(io);
    io.flat("squares", squares_, Fold::replicated);
  }

 private:
  void update(const kernel::RowGradients& gradient, const kernel::RowStep& step) override {
    kernel::table_adagrad(tables_, squares_, gradient, step);
  }

  Tensor squares_;  // [rows, D]
};

const Register<TableOptimizer, TableAdagrad, const Tensor&, const TableOptions&> registered{
    "adagrad",
    "steps divided by the root of all squares so far, element by element",
    {{"eps", "added to the root (1e-8)"},
     {"weight_decay", "of the rows that are stepped, decoupled (0)"}}};

}  // namespace
}  // namespace lockstep::optim
