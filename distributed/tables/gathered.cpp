// Every rank holds all tables and makes every step: the ranks' coalesced rows and values are
// gathered and added up in rank order, so that the replicas keep the same bits.
// Moves Σ over the other ranks of R·(8 + 4·D) bytes to a rank and step, R being the rows that a
// rank's window looked up; nothing that grows with the tables. One rank exchanges nothing.
#include "core/check.h"
#include "core/kernels/reduce.h"
#include "distributed/tables/merge_rows.h"
#include "distributed/tables/pending_gradient.h"
#include "distributed/tables/row_traffic.h"
#include "distributed/tables/table_sync.h"
#include "distributed/tables/window_gradient.h"

namespace lockstep::distributed {
namespace {

// A step that coalesces on its way does not tell how many rows there were. Every so many windows is
// coalesced before, which changes no bits, and counted.
constexpr int64_t kCounted = 16;

class Gathered final : public TableSync {
 public:
  explicit Gathered(const Spec&) {}

  Tensor fetch(const Tensor& rows, const Tensor&) override {
    if (looking_) return rows;
    pending_.clear();  // of a window that was given up before its step
    window_->end_micro();
    return rows;
  }

  bool exchange() override {
    pending_.clear();
    ++traffic_.exchanges;
    if (comm().size() == 1 && window_->untouched()) return leave_as_it_is();
    const SparseGrad mine = window_->take();
    traffic_.count(mine.count());
    const bool finite = kernel::first_non_finite(mine.values) < 0;
    comm().size() == 1 ? pending_.set(mine) : gather(mine);
    return finite;
  }

  double sum_of_squares() override { return kernel::sum_of_squares(pending_.coalesced().values); }

  void step(const optim::StepVerdict& verdict) override { pending_.step(*optimizer_, verdict); }
  void set_lr(double lr) override { optimizer_->set_lr(lr); }

  void report(StrategyReport& report) override { traffic_.report(report); }
  void state(StateIo& io) override {
    io.flat("tables", weight_, Fold::replicated);
    PrefixedState optimizer(io, "tables.optimizer.");
    optimizer_->state(optimizer);
  }

 private:
  void start() override {
    comm().broadcast(weight_, 0, {"tables"})->wait();
    window_.emplace(*gradient_, flat_rows());
    if (comm().size() > 1) sum_.emplace(sum_of_lists(flat_rows(), width()));
    count_ = Tensor::empty({1}, DType::i64);
    counts_ = Tensor::empty({comm().size()}, DType::i64);
    optimizer_ = context_.optimizer(weight_);
  }

  // One rank's one micro-batch, coalesced by the step. What reaches its rows is looked at instead
  // of the sums.
  bool leave_as_it_is() {
    bool finite = true;
    for (const kernel::BagGradient& one : gradient_->uncoalesced().bags)
      finite &= kernel::first_non_finite(one.dy) < 0;
    pending_.set(*gradient_);
    if (windows_++ % kCounted == 0) traffic_.count(pending_.coalesced().count());
    return finite;
  }

  void gather(const SparseGrad& mine) {
    const int n = comm().size(), self = comm().rank();
    count_.mutable_data<int64_t>()[0] = mine.count();
    comm().all_gather_v(counts_, count_, {}, {"row counts"})->wait();
    const int64_t* count = counts_.data<int64_t>();
    int64_t total = 0;
    rows_of_.assign(count, count + n);
    values_of_.clear();
    for (const int64_t rows : rows_of_) {
      total = checked_add(total, rows);
      values_of_.push_back(checked_mul(rows, width()));
    }
    const Tensor rows = Tensor::empty({total}, DType::i64);
    const Tensor values = Tensor::empty({total, width()});
    comm().all_gather_v(rows, mine.rows, rows_of_, {"rows"})->wait();
    comm().all_gather_v(values, mine.values, values_of_, {"row gradients"})->wait();
    traffic_.bytes += static_cast<double>((total - rows_of_[self]) * (8 + 4 * width()));
    for (int64_t rank = 0, at = 0; rank < n; at += rows_of_[rank++])
      add_list(*sum_, {rows.slice(at, at + rows_of_[rank]), values.slice(at, at + rows_of_[rank])});
    pending_.set(*sum_);
  }

  std::optional<WindowGradient> window_;
  std::optional<autograd::TableGradient> sum_;  // of the ranks' windows
  PendingGradient pending_;
  std::unique_ptr<optim::TableOptimizer> optimizer_;
  Tensor count_, counts_;                     // i64: rows of this rank, of every rank
  std::vector<int64_t> rows_of_, values_of_;  // elements by rank
  RowTraffic traffic_;
  int64_t windows_ = 0;  // that were left as they were
};

const Register<TableSync, Gathered> registered{
    "gathered", "every rank holds all tables; rows and values are gathered and added up"};

}  // namespace
}  // namespace lockstep::distributed
