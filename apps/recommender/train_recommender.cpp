#include "apps/recommender/train_recommender.h"

#include "apps/recommender/click_report.h"
#include "apps/recommender/evaluate_clicks.h"
#include "apps/training/registries.h"
#include "apps/training/sync_report.h"
#include "data/click_loader.h"
#include "distributed/tables/table_sync.h"

namespace lockstep::apps {
namespace {

using Best = std::optional<data::BestPossible>;

data::SamplerOptions sampler(const RecommenderOptions& o, const data::ClickSource& source,
                             int rank) {
  data::SamplerOptions sampler = o.sampler(source.samples(), rank);
  sampler.order = source.order();
  return sampler;
}

class Clicks final : public Workload {
 public:
  Clicks(const RecommenderOptions& o, const ClickData& data, const Best& best,
         distributed::Communicator& comm)
      : source_(*data.source),
        best_(best),
        batch_size_(o.batch),
        tables_(distributed::make_table_sync(table_strategy_of(o.sync))),
        table_learning_rate_(o.table_learning_rate()),
        context_{
            .comm = &comm,
            .rows = source_.schema().table_rows,
            .width = o.dim,
            .lookups =
                checked_mul(checked_mul(o.batch, source_.schema().largest_bag), o.accumulate),
            .initial = [this](const Tensor& out, int64_t row) { model_.initial_rows(out, row); },
            .optimizer =
                [&o](const Tensor& rows) {
                  return optim::make_table_optimizer(o.table_optimizer, rows, {.lr = o.table_lr});
                }},
        model_(o.model(source_.schema()), static_cast<uint64_t>(o.seed),
               tables_->local_rows(context_)),
        loader_(data.source, sampler(o, source_, comm.rank()), {}),
        evaluated_(o.val_samples > 0 ? std::min(o.val_samples, source_.held_out())
                                     : source_.held_out()) {}

  layers::Module& model() override { return model_; }
  int64_t more_parameters() const override {
    return table_elements(source_.schema(), context_.width);
  }
  bool has_tables() const override { return true; }

  void attach(distributed::Reducer& reducer) override {
    tables_->attach(context_, model_.tables().weight(), model_.tables().gradient());
    reducer.add_tables(*tables_);
  }
  void before_step(int64_t, int64_t updates) override {
    tables_->set_lr(table_learning_rate_.at(updates));
  }

  int64_t next() override {
    batch_ = &loader_.next();
    return batch_->samples();  // 0 also where all are malformed
  }
  void fetch() override {
    rows_ = tables_->fetch(batch_->samples() > 0 ? batch_->rows : Tensor(), batch_->offsets);
  }
  Tensor loss_sum() override {
    const bool weighted = model_.config().mode == BagMode::weighted;
    return model_.loss_sum(batch_->dense, rows_, batch_->offsets,
                           weighted ? batch_->weights : Tensor(), batch_->labels);
  }

  bool evaluates() const override { return evaluated_ > 0; }
  Evaluated evaluate(distributed::Communicator* comm) override {
    const ClickEvaluation seen =
        evaluate_clicks(model_, *tables_, source_, evaluated_, batch_size_, comm);
    if (seen.signal != 0 || seen.samples == 0) return {.signal = seen.signal};
    newest_ = seen;
    return {.loss = seen.log_loss,
            .more = evaluation_json(seen, std::nullopt),
            .text = evaluation_text(seen, best_)};
  }

  void report(nlohmann::ordered_json& more, std::string& text) const override {
    distributed::StrategyReport report;
    tables_->report(report);
    if (report.empty()) return;
    more["tables"] = sync_json(report);
    text += "tables: " + report.text();
  }
  void summarise(nlohmann::ordered_json& more) const override {
    if (newest_) more.update(evaluation_json(*newest_, best_));
    more.update(bad_rows_json(source_));
  }

 private:
  const data::ClickSource& source_;
  const Best& best_;
  const int64_t batch_size_;
  std::unique_ptr<distributed::TableSync> tables_;
  optim::Schedule table_learning_rate_;
  distributed::TableContext context_;
  Dlrm model_;
  data::ClickLoader loader_;
  const int64_t evaluated_;  // held-out samples
  const data::ClickBatch* batch_ = nullptr;
  Tensor rows_;
  std::optional<ClickEvaluation> newest_;
};

}  // namespace

Training recommender_training(const RecommenderOptions& o, const ClickData& data,
                              nlohmann::ordered_json config) {
  const auto best = std::make_shared<const Best>(data.find_best ? Best(data.find_best()) : Best());
  return {.options = o,
          .command = "train recommender",
          .config = std::move(config),
          .eval_every = o.eval_every,
          .empty_windows = true,
          .make = [&o, &data, best](distributed::Communicator& comm, int64_t) {
            return std::make_unique<Clicks>(o, data, *best, comm);
          }};
}

}  // namespace lockstep::apps
