#include "apps/training/step_exchange.h"

#include <bit>

namespace lockstep::apps {

using distributed::VerdictScope;

StepExchange::StepExchange(distributed::Communicator& comm,
                           const distributed::SyncStrategy& strategy)
    : comm_(comm),
      strategy_(strategy),
      mine_(Tensor::empty({3}, DType::i64)),
      all_(Tensor::empty({3 * comm.size()}, DType::i64)),
      scope_(strategy.verdict_scope()) {}

void StepExchange::post(double loss_sum, int64_t tokens, int signal) {
  scope_ = strategy_.verdict_scope();
  result_ = {.loss_sum = loss_sum, .tokens = tokens, .signal = signal};
  if (comm_.size() == 1 || strategy_.steps_between_sync() == 0) return;
  result_.signal = 0;  // not before all know
  if (scope_ == VerdictScope::this_rank && ++silent_ < kEvery) return;
  silent_ = 0;
  if (work_) result_.signal = receive().signal;
  int64_t* mine = mine_.mutable_data<int64_t>();
  mine[0] = std::bit_cast<int64_t>(loss_sum);
  mine[1] = tokens;
  mine[2] = signal;
  const distributed::Untimed books(comm_);
  work_ = comm_.all_gather_v(all_, mine_, {}, {"step report"});
}

StepExchange::Result StepExchange::wait() {
  if (!work_ || scope_ == VerdictScope::this_rank) return result_;
  const Result all = receive();
  if (scope_ == VerdictScope::all_ranks) return all;
  if (result_.signal == 0) result_.signal = all.signal;
  return result_;
}

StepExchange::Result StepExchange::receive() {
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
