#include "apps/transformer/evaluate.h"

#include "apps/cli/interrupt.h"
#include "autograd/no_grad.h"
#include "core/kernels/reduce.h"
#include "core/kernels/softmax_xent.h"
#include "data/sampler.h"

#include <algorithm>
#include <bit>

namespace lockstep::apps {
namespace {

int64_t correct(const Tensor& best, const Tensor& targets) {
  const int64_t* b = best.data<int64_t>();
  const int32_t* t = targets.data<int32_t>();
  int64_t count = 0;
  for (int64_t i = 0; i < targets.numel(); ++i) count += b[i] == t[i] ? 1 : 0;
  return count;
}

}  // namespace

Evaluation evaluate(Gpt& model, const data::TokenWindows& windows, int64_t rows,
                    distributed::Communicator* comm) {
  const int ranks = comm ? comm->size() : 1, self = comm ? comm->rank() : 0;
  const autograd::NoGrad no_grad;
  model.set_mode(layers::Module::Mode::evaluate);
  const int64_t context = windows.context();
  const data::Shard mine = data::shard(windows.disjoint(), ranks, self, data::Sharding::exact);
  double loss_sum = 0;
  int64_t right = 0;
  int64_t signal = 0;
  for (int64_t at = 0; at < mine.count() && signal == 0; at += rows) {
    const int64_t n = std::min(rows, mine.count() - at);
    const data::TokenBatch batch{.inputs = Tensor::empty({n, context}, DType::i32),
                                 .targets = Tensor::empty({n, context}, DType::i32)};
    for (int64_t i = 0; i < n; ++i) windows.copy_to(mine.sample(at + i) * context, batch, i);
    const Tensor targets = batch.targets.reshape({n * context});
    const Tensor logits = model.logits(batch.inputs).reshape({n * context, model.config().vocab});
    loss_sum += ops::softmax_cross_entropy_sum(logits, targets).item();
    const Tensor best = Tensor::empty({n * context}, DType::i64);
    kernel::argmax(best, logits);
    right += correct(best, targets);
    if (comm) comm->progress();
    signal = interrupt_signal();
  }
  model.set_mode(layers::Module::Mode::train);

  const Tensor part = from_values<int64_t>(
      {std::bit_cast<int64_t>(loss_sum), right, mine.count() * context, signal});
  const Tensor all = comm ? Tensor::empty({4 * ranks}, DType::i64) : part;
  if (comm) {
    const distributed::Untimed books(*comm);
    comm->all_gather_v(all, part, {}, {"evaluation"})->wait();
  }
  Evaluation total;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t* p = all.data<int64_t>() + int64_t{4} * rank;
    total.loss += std::bit_cast<double>(p[0]);
    total.accuracy += static_cast<double>(p[1]);
    total.tokens += p[2];
    if (total.signal == 0) total.signal = static_cast<int>(p[3]);
  }
  total.loss /= static_cast<double>(total.tokens);
  total.accuracy /= static_cast<double>(total.tokens);
  return total;
}

}  // namespace lockstep::apps
