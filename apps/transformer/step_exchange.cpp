#include "apps/transformer/step_exchange.h"

#include <bit>

namespace lockstep::apps {

StepExchange::StepExchange(distributed::Communicator& comm, Scope scope)
    : comm_(comm),
      ranks_(scope == Scope::this_rank ? 1 : comm.size()),
      mine_(Tensor::empty({3}, DType::i64)),
      all_(ranks_ == 1 ? mine_ : Tensor::empty({3 * ranks_}, DType::i64)) {}

void StepExchange::post(double loss_sum, int64_t tokens, int signal) {
  int64_t* mine = mine_.mutable_data<int64_t>();
  mine[0] = std::bit_cast<int64_t>(loss_sum);
  mine[1] = tokens;
  mine[2] = signal;
  if (ranks_ == 1) return;
  const distributed::Untimed books(comm_);
  work_ = comm_.all_gather_v(all_, mine_, {}, {"step report"});
}

StepExchange::Result StepExchange::wait() {
  if (work_) work_->wait();
  work_.reset();
  Result result;
  const int64_t* all = all_.data<int64_t>();
  for (int rank = 0; rank < ranks_; ++rank) {
    result.loss_sum += std::bit_cast<double>(all[3 * rank]);
    result.tokens += all[3 * rank + 1];
    if (result.signal == 0) result.signal = static_cast<int>(all[3 * rank + 2]);
  }
  return result;
}

}  // namespace lockstep::apps
