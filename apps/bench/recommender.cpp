#include "apps/bench/measure.h"
#include "apps/bench/step_calls.h"
#include "apps/recommender/dlrm.h"
#include "apps/report/machine.h"
#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "distributed/reducer.h"
#include "distributed/tables/table_sync.h"
#include "optim/table_memory.h"
#include "optim/table_optimizer.h"

#include <fmt/format.h>

#include <cmath>

// A training step of the recommender, with everything that `train recommender` has in one.
namespace lockstep::apps {
namespace {

using distributed::Communicator;

constexpr int64_t kBatch = 2048;
constexpr uint32_t kBatches = 16;  // different ones in turn: no step finds its rows in a cache
constexpr double kLearningRate = 0.1;

struct Batch {
  Tensor dense, rows, labels;
};

// Rows whose logarithm is uniform: a few of them are in most samples.
Batch random_batch(const DlrmConfig& config, uint32_t key) {
  const Random random(1, RandomStream::tests, key);
  uint64_t next = 0;
  const auto uniform = [&] { return random.uniform53(next++); };
  const Tensor dense = Tensor::empty({kBatch, config.dense}), labels = Tensor::empty({kBatch}),
               rows = Tensor::empty({std::ssize(config.table_rows) * kBatch}, DType::i32);
  for (int64_t i = 0; i < dense.numel(); ++i)
    dense.mutable_data<float>()[i] = static_cast<float>(uniform());
  for (int64_t i = 0; i < kBatch; ++i) labels.mutable_data<float>()[i] = uniform() < 0.5f ? 0 : 1;
  for (int64_t i = 0; i < rows.numel(); ++i)
    rows.mutable_data<int32_t>()[i] = static_cast<int32_t>(
        std::pow(static_cast<double>(config.table_rows[i / kBatch]), uniform()) - 1);
  return {dense, rows, labels};
}

class Rank {
 public:
  Rank(const DlrmConfig& config, const BenchOptions& options, Communicator& comm)
      : options_(options),
        model_(config, 1),
        autocast_(options.precision.compute_dtype()),
        params_(model_, options.precision.buffers()),
        reducer_(params_, comm, *strategy_, {.exchange = options.precision.exchange()}),
        optimizer_(optim::make_optimizer("sgd", params_.all(), {.lr = kLearningRate})),
        scaler_(options.precision.scaler(kBatch)) {
    tables_->attach({.comm = &comm,
                     .rows = config.table_rows,
                     .width = config.dim,
                     .lookups = kBatch,
                     .initial = [this](const Tensor& out,
                                       int64_t first_row) { model_.initial_rows(out, first_row); },
                     .optimizer =
                         [&options](const Tensor& tables) {
                           return optim::make_table_optimizer(options.table_optimizer, tables,
                                                              {.lr = kLearningRate});
                         }},
                    model_.tables().weight(), model_.tables().gradient());
    reducer_.add_tables(*tables_);
    for (uint32_t key = 0; key < kBatches; ++key) batches_.push_back(random_batch(config, key));
  }

  void train() {
    if (steps_ == kWarmUp) at_warm_ = StepCalls::now();
    const Batch& b = batches_[static_cast<size_t>(steps_ % kBatches)];
    {
      const Tensor rows = tables_->fetch(b.rows, {});
      const auto window = reducer_.micro({.weight = kBatch});
      autograd::backward(scaler_.scale(model_.loss_sum(b.dense, rows, {}, {}, b.labels)));
    }
    const optim::StepVerdict verdict = reducer_.finish_backward(scaler_);
    reducer_.step(*optimizer_, verdict);  // and the tables'
    scaler_.update(verdict);
    reducer_.finish_step(steps_++);
  }

  Measurement measured(double ms) const {
    const DlrmConfig& c = model_.config();
    nlohmann::ordered_json figures{{"samples_per_s", 1e3 * kBatch / ms},
                                   {"gflops", product_flops(c, kBatch) / ms * 1e-6}};
    add_memory(figures, at_warm_, steps_ - kWarmUp);
    const double tables = static_cast<double>(
        optim::table_memory(c.table_rows, c.dim, options_.table_optimizer).all());
    figures["table_memory_mb"] = tables * 1e-6;
    figures["percent_over_tables"] =
        100 * (figures["peak_memory_mb"].get<double>() / (tables * 1e-6) - 1);
    return {
        fmt::format("recommender {} x {} x {} batch {} {} {}", c.table_rows.size(), c.table_rows[0],
                    c.dim, kBatch, options_.table_optimizer, options_.precision.precision),
        ms, std::move(figures)};
  }

 private:
  const BenchOptions& options_;
  Dlrm model_;
  autograd::Autocast autocast_;
  optim::FlatParams params_;
  std::unique_ptr<distributed::SyncStrategy> strategy_ = distributed::make_strategy("allreduce");
  std::unique_ptr<distributed::TableSync> tables_ = distributed::make_table_sync("gathered");
  distributed::Reducer reducer_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::GradScaler scaler_;
  std::vector<Batch> batches_;
  int64_t steps_ = 0;
  StepCalls at_warm_;
};

}  // namespace

Measurements bench_recommender(const BenchOptions& options) {
  const DlrmConfig config{
      .table_rows = std::vector<int64_t>(static_cast<size_t>(options.tables), options.rows)};
  optim::expect_tables_fit(config.table_rows, config.dim, options.table_optimizer, memory_bytes());
  Measurements out;
  distributed::run_ranks(1, {.backend = "solo"}, [&](Communicator& comm) {
    const ThreadBudget budget(static_cast<int>(options.threads));
    Rank rank(config, options, comm);
    const double ms = median_ms(options.repeats, [&] { rank.train(); });
    out.push_back(rank.measured(ms));
  });
  return out;
}

}  // namespace lockstep::apps
