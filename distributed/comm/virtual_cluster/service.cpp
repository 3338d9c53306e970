#include "distributed/comm/virtual_cluster/service.h"

#include <fmt/format.h>

#include "distributed/comm/virtual_cluster/group.h"

namespace lockstep::distributed::virtual_cluster {

bool Service::call(int rank, ServiceCall& call, std::vector<int>& answered) {
  answered.clear();
  if (!logic_->handle(rank, call)) {
    waiting_[rank] = &call;
    return false;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t other = 0; other < waiting_.size() && !changed; ++other) {
      if (waiting_[other] == nullptr || !logic_->handle(static_cast<int>(other), *waiting_[other]))
        continue;
      waiting_[other] = nullptr;
      answered.push_back(static_cast<int>(other));
      changed = true;
    }
  }
  return true;
}

namespace {

class Port final : public ServicePort {
 public:
  Port(std::shared_ptr<Group> group, int rank, std::shared_ptr<Service> service)
      : group_(std::move(group)), rank_(rank), service_(std::move(service)) {}

  void call(ServiceCall& call) override {
    Scheduler& scheduler = group_->world().scheduler;
    const int self = group_->world_rank(rank_);
    Scheduler::Lock lock = scheduler.lock();
    // The request is sent when everybody else is further than that, and comes to the service as
    // its link and those before it permit.
    scheduler.await_turn(self, scheduler.now(self), lock);
    const int64_t sent = call.in.defined() ? call.in.bytes() : 0;
    const Interval request = group_->network().push(scheduler.now(self), sent, service_->link);
    if (sent > 0) tell(request, "push", sent);
    scheduler.await_turn(self, request.end, lock);
    if (service_->call(rank_, call, answered_))
      for (int other : answered_) scheduler.release(group_->world_rank(other), scheduler.now(self));
    else
      scheduler.block(
          self, [] { return std::string("the answer of a service"); }, lock);
    const int64_t received = call.out.defined() ? call.out.bytes() : 0;
    // The time at which it was answered is the earliest that this rank was released with.
    scheduler.await_turn(self, scheduler.earliest(self), lock);
    const Interval answer = group_->network().answer(scheduler.now(self), received, service_->link);
    if (received > 0) tell(answer, "pull", received);
    scheduler.advance(self, answer.end);
    group_->member(rank_).count_moved(call.bytes());
  }

 private:
  void tell(Interval time, const char* what, int64_t bytes) {
    group_->world().run->timeline.communicated(group_->world_rank(rank_), time, what, {},
                                               static_cast<double>(bytes));
  }

  std::shared_ptr<Group> group_;
  int rank_;
  std::shared_ptr<Service> service_;
  std::vector<int> answered_;  // scratch
};

}  // namespace

std::unique_ptr<ServicePort> connect(std::shared_ptr<Group> group, int rank,
                                     std::shared_ptr<Service> service) {
  return std::make_unique<Port>(std::move(group), rank, std::move(service));
}

}  // namespace lockstep::distributed::virtual_cluster
