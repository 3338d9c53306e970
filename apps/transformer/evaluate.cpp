#include "apps/transformer/evaluate.h"

#include "apps/cli/interrupt.h"
#include "apps/training/evaluation_sums.h"
#include "autograd/no_grad.h"
#include "data/sampler.h"

#include <algorithm>

namespace lockstep::apps {

Evaluation evaluate(Gpt& model, const data::TokenWindows& windows, int64_t rows,
                    distributed::Communicator* comm) {
  const int ranks = comm ? comm->size() : 1, self = comm ? comm->rank() : 0;
  const autograd::NoGrad no_grad;
  model.set_mode(layers::Module::Mode::evaluate);
  const int64_t context = windows.context();
  const data::Shard mine = data::shard(windows.disjoint(), ranks, self, data::Sharding::exact);
  EvaluationSums sums;
  for (int64_t at = 0; at < mine.count() && sums.signal == 0; at += rows) {
    const int64_t n = std::min(rows, mine.count() - at);
    const data::TokenBatch batch{.inputs = Tensor::empty({n, context}, DType::i32),
                                 .targets = Tensor::empty({n, context}, DType::i32)};
    for (int64_t i = 0; i < n; ++i) windows.copy_to(mine.sample(at + i) * context, batch, i);
    sums.add(model.logits(batch.inputs).reshape({n * context, model.config().vocab}),
             batch.targets.reshape({n * context}));
    if (comm) comm->progress();
    sums.signal = interrupt_signal();
  }
  model.set_mode(layers::Module::Mode::train);
  const EvaluationSums all = over_ranks(sums, comm);
  const auto tokens = static_cast<double>(all.count);
  return {.loss = all.loss / tokens,
          .accuracy = static_cast<double>(all.right) / tokens,
          .tokens = all.count,
          .signal = all.signal};
}

}  // namespace lockstep::apps
