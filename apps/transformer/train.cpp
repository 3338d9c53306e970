#include "apps/transformer/train.h"

#include "apps/transformer/evaluate.h"
#include "apps/transformer/model_file.h"
#include "data/loader.h"

namespace lockstep::apps {
namespace {

class Language final : public Workload {
 public:
  Language(const TrainOptions& o, const LanguageData& data, int rank, int64_t first_step)
      : o_(o),
        data_(data),
        model_(o.model(data.tokenizer->vocab()), static_cast<uint64_t>(o.seed)),
        loader_(data.training, o.sampler(data.training->count(), rank),
                {.first_step = first_step}) {}

  layers::Module& model() override { return model_; }

  int64_t next() override {
    batch_ = &loader_.next();
    return batch_->tokens();
  }
  Tensor loss_sum() override {
    return model_.loss_sum(batch_->inputs, batch_->targets,
                           {.seed = static_cast<uint64_t>(o_.seed),
                            .first_sample = batch_->step * o_.global_batch + batch_->first_sample});
  }

  bool evaluates() const override { return data_.validation != nullptr; }
  Evaluated evaluate(distributed::Communicator* comm) override {
    const Evaluation seen = apps::evaluate(model_, *data_.validation, o_.batch, comm);
    if (seen.signal != 0 || seen.tokens == 0) return {.signal = seen.signal};
    return {.loss = seen.loss, .accuracy = seen.accuracy};
  }

  void summarise(nlohmann::ordered_json& more) const override {
    if (data_.best_loss) more["best_possible_loss"] = *data_.best_loss;
  }
  void save(const RunDirectory& directory, const optim::FlatParams& params,
            const Tensor& weights) override {
    save_model(directory.file(kModelFile), model_.config(), *data_.tokenizer, params, weights);
  }

 private:
  const TrainOptions& o_;
  const LanguageData& data_;
  Gpt model_;
  data::Loader loader_;
  const data::TokenBatch* batch_ = nullptr;
};

}  // namespace

Training transformer_training(const TrainOptions& o, const LanguageData& data,
                              nlohmann::ordered_json config) {
  return {.options = o,
          .command = "train transformer",
          .config = std::move(config),
          .eval_every = o.eval_every,
          .tokens_per_sample = o.context,
          .make = [&o, &data](distributed::Communicator& comm, int64_t first_step) {
            return std::make_unique<Language>(o, data, comm.rank(), first_step);
          }};
}

}  // namespace lockstep::apps
