#include "distributed/compress/staged_sum.h"

#include <algorithm>

namespace lockstep::distributed {

bool StagedSum::advance(const Clock::time_point* until) {
  if (inner_) {
    if (until == nullptr)
      inner_->wait();
    else if (!inner_->wait_until(*until))
      return false;
  }
  inner_ = post(next_);
  ++next_;
  return true;
}

bool StagedSum::poll() {
  if (!inner_->done()) return false;
  if (inner_->error()) std::rethrow_exception(inner_->error());
  if (more()) return false;
  finish();
  return true;
}

bool StagedSum::block(const Clock::time_point* until) {
  if (!queue_->drain(until)) return false;
  while (more())  // the exchange that began it has gone
    if (!advance(until)) return false;
  if (until == nullptr)
    inner_->wait();
  else if (!inner_->wait_until(*until))
    return false;
  finish();
  return true;
}

void StageQueue::start(const std::shared_ptr<StagedSum>& sum) {
  if (draining_) drain();
  sum->advance(nullptr);
  for (const Open& open : open_)
    if (open.number + kLag <= started_) open.sum->advance(nullptr);
  drop_posted();
  if (sum->more()) open_.push_back({sum, started_});
  ++started_;
}

bool StageQueue::drain(const Clock::time_point* until) {
  draining_ = true;
  while (!open_.empty()) {
    for (; at_ < open_.size(); ++at_)
      if (!open_[at_].sum->advance(until)) return false;
    at_ = 0;
    drop_posted();
  }
  draining_ = false;
  return true;
}

void StageQueue::drop_posted() {
  std::erase_if(open_, [](const Open& open) { return !open.sum->more(); });
}

}  // namespace lockstep::distributed
