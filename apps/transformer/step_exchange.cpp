#include "apps/transformer/step_exchange.h"

#include <bit>

namespace lockstep::apps {

StepExchange::StepExchange(distributed::Communicator& comm)
    : comm_(comm),
      mine_(Tensor::empty({3}, DType::i64)),
      all_(Tensor::empty({3 * comm.size()}, DType::i64)) {}

void StepExchange::post(double loss_sum, int64_t tokens, int signal) {
  int64_t* mine = mine_.mutable_data<int64_t>();
  mine[0] = std::bit_cast<int64_t>(loss_sum);
  mine[1] = tokens;
  mine[2] = signal;
  work_ = comm_.all_gather_v(all_, mine_, {}, {"step report"});
}

StepExchange::Result StepExchange::wait() {
  work_->wait();
  work_.reset();
  Result result;
  const int64_t* all = all_.data<int64_t>();
  for (int rank = 0; rank < comm_.size(); ++rank) {
    result.loss_sum += std::bit_cast<double>(all[3 * rank]);
    result.tokens += all[3 * rank + 1];
    if (result.signal == 0) result.signal = static_cast<int>(all[3 * rank + 2]);
  }
  return result;
}

}  // namespace lockstep::apps
