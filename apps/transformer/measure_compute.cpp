#include "apps/transformer/measure_compute.h"

#include "apps/training/median_seconds.h"
#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "core/parallel.h"
#include "data/loader.h"
#include "optim/flat_params.h"

namespace lockstep::apps {

double measure_compute(const TrainOptions& o, const LanguageData& data) {
  const ThreadBudget budget(static_cast<int>(o.threads));
  Gpt model(o.model(data.tokenizer->vocab()), static_cast<uint64_t>(o.seed));
  const autograd::Autocast autocast(o.precision.compute_dtype());
  optim::FlatParams params(model, o.precision.buffers());
  data::Loader loader(data.training,
                      {.samples = data.training->count(),
                       .global_batch = o.batch,
                       .ranks = 1,
                       .rank = 0,
                       .micro_batches = 1,
                       .seed = static_cast<uint64_t>(o.seed)},
                      {});
  const data::TokenBatch* batch = nullptr;
  return median_seconds(
      [&] {
        batch = &loader.next();
        return batch->rows() == o.batch;  // not the short last step of an epoch
      },
      [&] { autograd::backward(model.loss_sum(batch->inputs, batch->targets, {})); });
}

}  // namespace lockstep::apps
