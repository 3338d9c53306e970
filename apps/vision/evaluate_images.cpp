#include "apps/vision/evaluate_images.h"

#include "apps/cli/interrupt.h"
#include "autograd/no_grad.h"
#include "data/sampler.h"

#include <algorithm>
#include <numeric>

namespace lockstep::apps {

EvaluationSums evaluate_images(ResidualNet& model, const data::ImageDataset& source, int64_t count,
                               int64_t rows, distributed::Communicator* comm) {
  const autograd::NoGrad no_grad;
  model.set_mode(layers::Module::Mode::evaluate);
  const data::Shard mine =
      data::shard(count, comm ? comm->size() : 1, comm ? comm->rank() : 0, data::Sharding::exact);
  data::ImageBuffer buffer(source.schema(), rows);
  std::vector<int64_t> samples;
  EvaluationSums sums;
  for (int64_t at = mine.begin; at < mine.end && sums.signal == 0; at += rows) {
    samples.resize(static_cast<size_t>(std::min(rows, mine.end - at)));
    std::iota(samples.begin(), samples.end(), source.samples() + at);
    source.fill(samples, buffer);
    sums.add(model.logits(buffer.batch().images), buffer.batch().labels);
    if (comm) comm->progress();
    sums.signal = interrupt_signal();
  }
  model.set_mode(layers::Module::Mode::train);
  return over_ranks(sums, comm);
}

}  // namespace lockstep::apps
