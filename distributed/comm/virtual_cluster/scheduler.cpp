#include "distributed/comm/virtual_cluster/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::distributed::virtual_cluster {

Scheduler::Scheduler(int ranks, int cores, std::chrono::milliseconds timeout)
    : ranks_(static_cast<size_t>(ranks)), free_cores_(cores), timeout_(timeout) {}

void Scheduler::enter(int rank, Lock& lock) {
  ranks_[rank].state = State::ready;
  ranks_[rank].core.enter();
  dispatch();
  sleep(rank, lock);
}

void Scheduler::leave(int rank) {
  rest(rank, State::left);
  ranks_[rank].earliest = kNever;
  dispatch();
}

void Scheduler::advance(int rank, double time) {
  Rank& r = ranks_[rank];
  r.now = std::max(r.now, time);
  promise(rank, r.now);
}

void Scheduler::promise(int rank, double time) {
  Rank& r = ranks_[rank];
  if (time <= r.earliest) return;
  r.earliest = time;
  dispatch();
}

void Scheduler::await_turn(int rank, double time, Lock& lock) {
  throw_if_failed();
  Rank& r = ranks_[rank];
  rest(rank, State::turn);
  r.earliest = time;
  dispatch();
  sleep(rank, lock);
  r.now = std::max(r.now, time);
}

void Scheduler::block(int rank, std::function<std::string()> what, Lock& lock) {
  throw_if_failed();
  Rank& r = ranks_[rank];
  r.what = std::move(what);
  rest(rank, State::blocked);
  r.earliest = kNever;
  dispatch();
  sleep(rank, lock);
  r.what = nullptr;
}

void Scheduler::release(int rank, double earliest) {
  Rank& r = ranks_[rank];
  if (r.state != State::blocked) return;
  r.state = State::ready;
  r.earliest = earliest;
  dispatch();
}

void Scheduler::fail(const std::string& cause, const FaultSite& site) {
  if (failed_) return;
  failed_ = true;
  cause_ = cause;
  site_ = site;
  for (Rank& r : ranks_) r.changed.notify_all();
}

void Scheduler::throw_if_failed() const {
  if (failed_) throw SystemError(Fault::communication, cause_, site_);
}

// Until the rank has a core, or all is over: it then goes on without one.
void Scheduler::sleep(int rank, Lock& lock) {
  Rank& r = ranks_[rank];
  int64_t seen = changes_;
  while (r.state != State::running && !failed_) {
    if (r.changed.wait_for(lock, timeout_) == std::cv_status::no_timeout || changes_ != seen) {
      seen = changes_;
      continue;
    }
    std::string busy;
    int first = -1;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].state != State::running && ranks_[i].state != State::absent) continue;
      busy += fmt::format("{}{}", busy.empty() ? "" : ", ", i);
      if (first < 0) first = static_cast<int>(i);
    }
    fail(fmt::format("[comm.virtual] nothing happened for {:g} s; rank {} still computes; expected "
                     "it to go on within the time-out (--timeout)",
                     std::chrono::duration<double>(timeout_).count(), busy),
         {first, "", -1});
  }
  r.core.woken();
  throw_if_failed();
}

void Scheduler::rest(int rank, State state) {
  Rank& r = ranks_[rank];
  if (r.state == State::running) {
    ++free_cores_;
    sleeper_ = &r;
  }
  r.state = state;
  ++changes_;
}

void Scheduler::dispatch() {
  if (failed_) return;
  ++changes_;
  grant_turn();
  give_cores();
  sleeper_ = nullptr;
  expect_somebody();
}

void Scheduler::grant_turn() {
  Rank* first = nullptr;
  for (Rank& r : ranks_)  // the lowest rank wins ties
    if (r.state == State::turn && (first == nullptr || r.earliest < first->earliest)) first = &r;
  if (first == nullptr) return;
  for (Rank& r : ranks_) {
    if (&r == first || r.state == State::turn) continue;
    if (r.earliest < first->earliest || (r.earliest == first->earliest && &r < first)) return;
  }
  first->state = State::ready;
}

void Scheduler::give_cores() {
  while (free_cores_ > 0) {
    Rank* next = nullptr;
    for (Rank& r : ranks_)
      if (r.state == State::ready && (next == nullptr || r.earliest < next->earliest)) next = &r;
    if (next == nullptr) return;
    --free_cores_;
    next->state = State::running;
    if (sleeper_ != nullptr && next != sleeper_) next->core.to_my_core();
    sleeper_ = nullptr;
    next->changed.notify_all();
  }
}

void Scheduler::expect_somebody() {
  std::string waiting;
  int first = -1;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& r = ranks_[i];
    if (r.state != State::blocked && r.state != State::left) return;
    if (r.state == State::left) continue;
    if (first < 0) first = static_cast<int>(i);
    waiting += fmt::format("{}rank {} for {}", waiting.empty() ? "" : ", ", i, r.what());
  }
  if (first < 0) return;  // all have left
  const bool some_left = std::any_of(ranks_.begin(), ranks_.end(),
                                     [](const Rank& r) { return r.state == State::left; });
  std::string left;
  if (some_left) {
    for (size_t i = 0; i < ranks_.size(); ++i)
      if (ranks_[i].state == State::left) left += fmt::format("{}{}", left.empty() ? "" : ", ", i);
    left = fmt::format("; rank {} left", left);
  }
  fail(fmt::format("[comm.virtual] all ranks wait and none can go on: {}{}", waiting, left),
       {first, "", -1});
}

}  // namespace lockstep::distributed::virtual_cluster
