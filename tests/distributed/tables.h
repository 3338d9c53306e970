#pragma once
#include <map>
#include <memory>
#include <string>

#include "autograd/no_grad.h"
#include "core/kernels/elementwise.h"
#include "distributed/comm/launch.h"
#include "distributed/tables/table_sync.h"
#include "layers/embedding_tables.h"
#include "models.h"
#include "optim/optimizer.h"
#include "tests/support/bags.h"

namespace lockstep::distributed {

inline constexpr int64_t kWidth = 5;
inline constexpr int64_t kBatch = 8;
inline constexpr int64_t kLargestBag = 3;
/// Tables with fewer rows than a batch looks up, and with more.
inline const std::vector<int64_t> kRows = {3, 40, 200};

/// Bags of several tables, then a linear layer; squared errors. Deterministic in its seed.
class BagNet final : public layers::Module {
 public:
  BagNet(uint64_t seed, const std::vector<int64_t>& local)
      : whole_init_(seed),
        init_(seed),
        whole_(whole_init_, kRows, kWidth),
        tables(init_, local, kWidth),
        out_(init_, static_cast<int64_t>(kRows.size()) * kWidth, 1) {
    add_child("out", out_);
    if (local == kRows) return;
    kernel::fill(tables.weight(), NAN);  // nothing there counts
  }
  void initial(const Tensor& out, int64_t first) const {
    std::ranges::copy(values(whole_.weight().slice(first, first + out.size(0))),
                      out.mutable_data<float>());
  }
  /// Of micro-batch number `batch` of a fixed random data set, whose rows may have been replaced.
  Tensor loss_sum(int64_t batch, const Tensor& rows, const Tensor& offsets) const {
    const Tensor bags = tables(rows, offsets);
    const Tensor y =
        out_(ops::reshape(bags, {kBatch, static_cast<int64_t>(kRows.size()) * kWidth}));
    const Random random(98, RandomStream::tests, static_cast<uint32_t>(batch));
    Floats wanted(kBatch);
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<float>(random.normal(i));
    const Tensor error = ops::subtract(y, from_values(wanted, {kBatch, 1}));
    return ops::sum(ops::unary(error, kernel::Unary::square));
  }

 private:
  layers::Initialiser whole_init_, init_;
  layers::EmbeddingTables whole_;

 public:
  layers::EmbeddingTables tables;

 private:
  layers::Linear out_;
};

inline kernel::Bags bags_of(int64_t batch) {
  return test::random_bags<int32_t>(test::TestTables(kRows), kBatch, kLargestBag, BagMode::sum,
                                    static_cast<uint32_t>(batch));
}

/// One rank that trains it.
struct TableTrainer {
  TableTrainer(Communicator& c, const std::string& strategy_spec, const std::string& tables_spec,
               const std::string& optimizer_spec = "sgd", const ReducerOptions& options = {},
               uint64_t seed = 1)
      : comm(c),
        sync(make_table_sync(tables_spec)),
        context{.comm = &c,
                .rows = kRows,
                .width = kWidth,
                .lookups = 4 * kBatch * kLargestBag,
                .initial = [this](const Tensor& out, int64_t first) { net.initial(out, first); },
                .optimizer =
                    [optimizer_spec](const Tensor& tables) {
                      return optim::make_table_optimizer(optimizer_spec, tables, {.lr = 0.05});
                    }},
        net(seed, sync->local_rows(context)),
        params(net),
        strategy(make_strategy(strategy_spec)),
        reducer(params, c, *strategy, options),
        optimizer(optim::make_optimizer("sgd", params.all(), {.lr = 0.01, .weight_decay = 0})) {
    sync->attach(context, net.tables.weight(), net.tables.gradient());
    reducer.add_tables(*sync);
    reducer.start(*optimizer);
  }

  /// `extra` reaches every lookup besides what backward finds: gradients of tables alone.
  void micro(int64_t batch, Sync when = Sync::now, float extra = 0) {
    const kernel::Bags bags = bags_of(batch);
    const Tensor rows = sync->fetch(bags.rows, bags.offsets);
    const auto window = reducer.micro({.sync = when, .weight = kBatch, .scale = scaler.scale()});
    autograd::backward(scaler.scale(net.loss_sum(batch, rows, bags.offsets)));
    if (extra == 0) return;
    const auto tables = static_cast<int64_t>(kRows.size());
    net.tables.gradient().add(full({kBatch, tables, kWidth}, extra), {rows, bags.offsets});
  }
  void no_micro() { (void)sync->fetch({}, {}); }
  StepVerdict end(int64_t s, double max_norm = 0) {
    StepVerdict verdict = reducer.finish_backward(scaler);
    if (max_norm > 0) verdict.clip(reducer.grad_norm(verdict), max_norm);
    const StepVerdict made = reducer.step(*optimizer, verdict);
    reducer.finish_step(s);
    return made;
  }
  /// Step number s uses micro-batches s·n·k … of the data; each rank takes k in a row.
  StepVerdict step(int64_t s, int micros = 1, double max_norm = 0) {
    const int64_t first = (s * comm.size() + comm.rank()) * micros;
    for (int k = 0; k < micros; ++k) micro(first + k, k + 1 == micros ? Sync::now : Sync::later);
    return end(s, max_norm);
  }
  /// Σ loss of some batches. On all ranks.
  double evaluate(int64_t batches) {
    const auto looking = reducer.evaluating(*optimizer);
    const autograd::NoGrad off;
    double sum = 0;
    for (int64_t batch = 0; batch < batches; ++batch) {
      const kernel::Bags bags = bags_of(batch);
      sum += net.loss_sum(batch, sync->fetch(bags.rows, bags.offsets), bags.offsets).item();
    }
    return sum;
  }
  /// All rows, as they are on this rank's side: fetched in evaluation, table by table.
  Floats tables() {
    Floats all;
    const auto looking = reducer.evaluating(*optimizer);
    const int64_t width = kWidth, count = static_cast<int64_t>(kRows.size());
    const auto first = net.tables.gradient().layout().first_row;
    for (int64_t t = 0; t < count; ++t)
      for (int64_t row = 0; row < kRows[t]; row += 16) {
        const int64_t n = std::min<int64_t>(16, kRows[t] - row);
        std::vector<int32_t> rows, offsets(static_cast<size_t>(count * n + 1));
        for (int64_t i = 0; i < n; ++i) rows.push_back(static_cast<int32_t>(row + i));
        for (int64_t bag = 0; bag <= count * n; ++bag)
          offsets[bag] = static_cast<int32_t>(std::clamp<int64_t>(bag - t * n, 0, n));
        const Tensor places = sync->fetch(from_values(rows), from_values(offsets));
        for (const int32_t place : values<int32_t>(places)) {
          const float* w = net.tables.weight().data<float>() + (first[t] + place) * width;
          all.insert(all.end(), w, w + width);
        }
      }
    return all;
  }
  StrategyReport report() {
    StrategyReport report;
    sync->report(report);
    return report;
  }
  double number(const std::string& name) {
    for (const auto& n : report().numbers)
      if (n.name == name) return n.value;
    ADD_FAILURE() << "no number " << name;
    return NAN;
  }
  void state(StateIo& io) {
    Tensor parameters = params.all().param;
    io.flat("parameters", parameters, Fold::replicated);
    optimizer->state(io);
    strategy->state(io);
    sync->state(io);
  }
  Floats weights() const { return floats(params.all().param); }

  Communicator& comm;
  std::unique_ptr<TableSync> sync;
  TableContext context;
  BagNet net;
  optim::FlatParams params;
  std::unique_ptr<SyncStrategy> strategy;
  Reducer reducer;
  std::unique_ptr<Optimizer> optimizer;
  optim::GradScaler scaler{1, kBatch};
};

}  // namespace lockstep::distributed
