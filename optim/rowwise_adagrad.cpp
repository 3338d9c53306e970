// Adagrad with one sum for each row, a D-th of the memory (as in FBGEMM and the DLRM paper's code):
//     s ← s + mean over the row of g²      w ← w·(1 - lr·decay) - lr·g / (√s + eps)
#include "optim/table_optimizer.h"

namespace lockstep::optim {
namespace {

class RowwiseAdagrad final : public TableOptimizer {
 public:
  RowwiseAdagrad(const Spec&, const Tensor& tables, const TableOptions& options)
      : TableOptimizer(tables, options), squares_(zeros_by_row()) {}

  void state(StateIo& io) override {
    TableOptimizer::state(io);
    io.flat("squares", squares_, Fold::replicated);
  }

 private:
  void update(const kernel::RowGradients& gradient, const kernel::RowStep& step) override {
    kernel::table_rowwise_adagrad(tables_, squares_, gradient, step);
  }

  Tensor squares_;  // [rows]
};

const Register<TableOptimizer, RowwiseAdagrad, const Tensor&, const TableOptions&> registered{
    "rowwise_adagrad",
    "Adagrad with one sum of squares for each row",
    {{"eps", "added to the root (1e-8)"},
     {"weight_decay", "of the rows that are stepped, decoupled (0)"}}};

}  // namespace
}  // namespace lockstep::optim
