#include "apps/transformer/measure_compute.h"

#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "core/parallel.h"
#include "data/loader.h"
#include "optim/flat_params.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace lockstep::apps {
namespace {

constexpr int kWarm = 2, kTimed = 7;

}  // namespace

double measure_compute(const TrainOptions& o, const LanguageData& data) {
  using Clock = std::chrono::steady_clock;
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
  std::vector<double> seconds;
  for (int seen = 0; seen < kWarm + kTimed;) {
    const data::TokenBatch& batch = loader.next();
    if (batch.rows() < o.batch) continue;  // the short last step of an epoch
    const Clock::time_point begin = Clock::now();
    autograd::backward(model.loss_sum(batch.inputs, batch.targets, {}));
    const std::chrono::duration<double> took = Clock::now() - begin;
    if (++seen > kWarm) seconds.push_back(took.count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<int64_t>(seconds.size() / 2),
                   seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace lockstep::apps
