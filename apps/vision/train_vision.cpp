#include "apps/vision/train_vision.h"

#include "apps/vision/evaluate_images.h"
#include "apps/vision/image_model_file.h"
#include "data/source_loader.h"
#include "distributed/layers/sync_batch_norm.h"
#include "layers/batch_norm.h"

namespace lockstep::apps {
namespace {

using ImageLoader = data::SourceLoader<data::ImageDataset>;

data::SamplerOptions sampler(const VisionOptions& o, const data::ImageDataset& source, int rank) {
  data::SamplerOptions sampler = o.sampler(source.samples(), rank);
  sampler.order = source.order();
  return sampler;
}

// Whether batches have made the running statistics.
bool has_statistics(ResidualNet& model) {
  bool all = true;
  model.visit([&](const std::string&, layers::Module& module) {
    if (const auto* norm = dynamic_cast<const layers::BatchNorm*>(&module))
      all &= norm->batches() > 0;
  });
  return all;
}

class Images final : public Workload {
 public:
  Images(const VisionOptions& o, const ImageData& data, distributed::Communicator& comm,
         int64_t first_step)
      : o_(o),
        norm_(o.norm_choice()),
        data_(data),
        comm_(comm),
        model_(o.model(data.source->schema()), static_cast<uint64_t>(o.seed)),
        loader_(data.source, sampler(o, *data.source, comm.rank()), {.first_step = first_step}),
        evaluated_(o.val_samples > 0 ? std::min(o.val_samples, data.source->held_out())
                                     : data.source->held_out()) {
    if (!o.init.empty()) load_into(model_, o.init);
    warning_ = norm_.warning(o.batch, o.accumulate, has_statistics(model_));
  }

  layers::Module& model() override { return model_; }

  void attach(distributed::Reducer& reducer) override {
    if (norm_.layer() != ResidualNetConfig::Norm::batch) return;
    buffers_.emplace(model_.buffers(), comm_);
    reducer.add_buffers(*buffers_);
    if (norm_.kind == NormChoice::Kind::sync_batch) distributed::sync_batch_norms(model_, comm_);
  }
  void before_step(int64_t step, int64_t) override {
    if (norm_.kind != NormChoice::Kind::frozen_batch || frozen_ || step < norm_.after) return;
    if (norm_.after > 0) buffers_->make_equal();  // ranks have seen different batches
    layers::freeze_batch_norms(model_);
    frozen_ = true;
  }

  int64_t next() override {
    batch_ = &loader_.next();
    return batch_->samples();
  }
  bool runs_empty() const override {
    return norm_.kind == NormChoice::Kind::sync_batch && comm_.size() > 1;
  }
  Tensor loss_sum() override { return model_.loss_sum(batch_->images, batch_->labels); }

  bool evaluates() const override { return evaluated_ > 0; }
  Evaluated evaluate(distributed::Communicator* comm) override {
    const EvaluationSums seen = evaluate_images(model_, *data_.source, evaluated_, o_.batch, comm);
    if (seen.signal != 0) return {.signal = seen.signal};
    const auto count = static_cast<double>(seen.count);
    return {.loss = seen.loss / count, .accuracy = static_cast<double>(seen.right) / count};
  }

  std::string warning() const override { return warning_; }
  void summarise(nlohmann::ordered_json& more) const override {
    if (!data_.best) return;
    more["best_possible_accuracy"] = data_.best->accuracy;
    more["best_possible_loss"] = data_.best->log_loss;
  }
  void save(const RunDirectory& directory, const optim::FlatParams& params,
            const Tensor& weights) override {
    save_image_model(directory.file(kModelFile), model_, params, weights);
  }

 private:
  const VisionOptions& o_;
  const NormChoice norm_;
  const ImageData& data_;
  distributed::Communicator& comm_;
  ResidualNet model_;
  ImageLoader loader_;
  const int64_t evaluated_;  // held-out images
  std::optional<distributed::BufferSync> buffers_;
  bool frozen_ = false;
  std::string warning_;
  const data::ImageBatch* batch_ = nullptr;
};

}  // namespace

Training vision_training(const VisionOptions& o, const ImageData& data,
                         nlohmann::ordered_json config) {
  return {.options = o,
          .command = "train vision",
          .config = std::move(config),
          .eval_every = o.eval_every,
          .make = [&o, &data](distributed::Communicator& comm, int64_t first_step) {
            return std::make_unique<Images>(o, data, comm, first_step);
          }};
}

}  // namespace lockstep::apps
