// Tables cut over the ranks (model parallel: Naumov et al. 2019, "Deep Learning Recommendation
// Model for Personalization and Recommendation Systems", arXiv:1906.00091): each rank owns a range
// of the rows of all tables, with the optimiser's state of them. A fetch asks the owners for rows
// and gets values; gradients go the same way, are added up by the owner in rank order, and stepped
// there. The same bits as `gathered`, for an n-th of the memory; only a clipped step may differ in
// the last bits, since the norm is added up in another order.
// Brings to a rank, for R unique rows of its window spread evenly over the owners,
// (n-1)/n·R·(8 + 4·D) bytes for the fetch and as much for the gradients.
#include <algorithm>
#include <optional>

#include "core/check.h"
#include "core/kernels/reduce.h"
#include "distributed/comm/scalars.h"
#include "distributed/tables/merge_rows.h"
#include "distributed/tables/pending_gradient.h"
#include "distributed/tables/row_copies.h"
#include "distributed/tables/row_routes.h"
#include "distributed/tables/row_traffic.h"
#include "distributed/tables/window_tables.h"

namespace lockstep::distributed {
namespace {

// What an optimiser keeps for rows, of a part of them.
class StateOfPart final : public StateIo {
 public:
  explicit StateOfPart(StateIo& io) : io_(io) {}
  void flat(const std::string& name, Tensor& value, Fold) override {
    io_.flat(name, value, Fold::resharded);
  }
  void value(const std::string& name, int64_t& value, Fold fold) override {
    io_.value(name, value, fold);
  }
  void value(const std::string& name, double& value, Fold fold) override {
    io_.value(name, value, fold);
  }

 private:
  StateIo& io_;
};

class Sharded final : public WindowTables {
 public:
  explicit Sharded(const Spec&) {}

  bool exchange() override {
    pending_.clear();
    squares_.reset();
    const SparseGrad mine = window_gradient();
    end_window();
    traffic_.count(mine.count());
    ++traffic_.exchanges;
    const bool finite = kernel::first_non_finite(mine.values) < 0;
    routes_->plan(rows_in(mine.rows));
    const Tensor rows = routes_->to_owners(mine.rows, 1, {"rows of gradients"});
    const Tensor values = routes_->to_owners(mine.values, width(), {"row gradients"});
    int64_t* row = rows.mutable_data<int64_t>();
    for (int64_t i = 0; i < rows.numel(); ++i) row[i] -= first_;
    int64_t at = 0;
    for (const int64_t count : routes_->received()) {
      add_list(*sum_,
               {rows.reshape({rows.numel()}).slice(at, at + count), values.slice(at, at + count)});
      at += count;
    }
    pending_.set(*sum_);
    return finite;
  }

  double sum_of_squares() override {
    if (!squares_) {
      const double mine = kernel::sum_of_squares(pending_.coalesced().values);
      squares_ = sum_over_ranks(comm(), mine);
    }
    return *squares_;
  }

  void step(const optim::StepVerdict& verdict) override { pending_.step(*optimizer_, verdict); }
  void set_lr(double lr) override { optimizer_->set_lr(lr); }

  void report(StrategyReport& report) override {
    traffic_.bytes = routes_->bytes() - looked_at_;
    traffic_.report(report);
  }
  void state(StateIo& io) override {
    io.flat("tables", shard_, Fold::resharded);
    StateOfPart part(io);
    PrefixedState optimizer(part, "tables.optimizer.");
    optimizer_->state(optimizer);
  }

 private:
  void start() override {
    WindowTables::start();
    routes_.emplace(comm(), flat_rows());
    first_ = routes_->first_owned(comm().rank());
    const int64_t owned = routes_->first_owned(comm().rank() + 1) - first_;
    // A rank of more than there are rows owns none, and has room for one.
    shard_ = zeros({std::max<int64_t>(owned, 1), width()});
    if (owned > 0) context_.initial(shard_, first_);
    sum_.emplace(sum_of_lists(shard_.size(0), width()));
    optimizer_ = context_.optimizer(shard_);
  }

  void bring(std::span<const int64_t> rows, std::span<const int64_t> places) override {
    const double before = routes_->bytes();
    routes_->plan(rows);
    const Tensor asked = routes_->to_owners(tensor_of(rows), 1, {"rows to fetch"});
    const Tensor answer = Tensor::empty({asked.numel(), width()});
    gather_rows(answer.mutable_data<float>(), shard_.data<float>(), rows_in(asked), first_,
                width());
    const Tensor values = routes_->to_askers(answer, width(), {"fetched rows"});
    scatter_rows(weight_.mutable_data<float>(), values.data<float>(), places, width());
    if (looking_) looked_at_ += routes_->bytes() - before;
  }

  std::optional<RowRoutes> routes_;
  int64_t first_ = 0;  // row that this rank owns
  Tensor shard_;       // [owned, D]
  std::unique_ptr<optim::TableOptimizer> optimizer_;
  std::optional<autograd::TableGradient> sum_;  // of the ranks' windows, of owned rows
  PendingGradient pending_;
  std::optional<double> squares_;  // over all ranks, once asked for
  RowTraffic traffic_;
  double looked_at_ = 0;  // bytes of evaluations
};

const Register<TableSync, Sharded> registered{
    "sharded",
    "each rank owns a range of the rows and steps it; rows are fetched from their owners"};

}  // namespace
}  // namespace lockstep::distributed
