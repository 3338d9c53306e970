#include "apps/recommender/measure_clicks.h"

#include "apps/training/median_seconds.h"
#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "core/parallel.h"
#include "data/click_loader.h"
#include "optim/flat_params.h"

namespace lockstep::apps {

double measure_clicks(const RecommenderOptions& o, const ClickData& data) {
  const ThreadBudget budget(static_cast<int>(o.threads));
  const data::ClickSource& source = *data.source;
  const DlrmConfig shape = o.model(source.schema());
  Dlrm model(shape, static_cast<uint64_t>(o.seed));
  const autograd::Autocast autocast(o.precision.compute_dtype());
  optim::FlatParams params(model, o.precision.buffers());
  data::ClickLoader loader(data.source,
                           {.samples = source.samples(),
                            .global_batch = o.batch,
                            .seed = static_cast<uint64_t>(o.seed),
                            .order = source.order()},
                           {});
  const data::ClickBatch* batch = nullptr;
  return median_seconds(
      [&] {
        batch = &loader.next();
        return batch->samples() > o.batch / 2;  // rather whole than the short last of an epoch
      },
      [&] {
        const bool weighted = shape.mode == BagMode::weighted;
        autograd::backward(model.loss_sum(batch->dense, batch->rows, batch->offsets,
                                          weighted ? batch->weights : Tensor(), batch->labels));
        model.tables().gradient().coalesce();
      });
}

}  // namespace lockstep::apps
