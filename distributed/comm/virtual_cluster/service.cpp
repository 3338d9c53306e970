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
      : group_(std::move(group)),
        rank_(rank),
        self_(group_->world_rank(rank)),
        service_(std::move(service)) {}

  void call(ServiceCall& call) override {
    Scheduler::Lock lock = scheduler().lock();
    if (!call.untimed) send(call, lock);
    answer(call, lock);
    if (!call.untimed) receive(call, lock);
    group_->member(rank_).count_moved(call.bytes());
  }

 private:
  Scheduler& scheduler() const { return group_->world().scheduler; }
  double now() const { return scheduler().now(self_); }

  // The request is sent when everybody else is further than that, and comes to the service as its
  // link and those before it permit.
  void send(const ServiceCall& call, Scheduler::Lock& lock) {
    scheduler().await_turn(self_, now(), lock);
    const int64_t bytes = call.in.defined() ? call.in.bytes() : 0;
    const Interval request = group_->network().push(now(), bytes, service_->link);
    if (bytes > 0) tell(request, "push", bytes);
    scheduler().advance(self_, request.end);
  }
  // At this rank's clock: after all calls that come to the service before (time, rank), and before
  // all others, whatever the threads do.
  void answer(ServiceCall& call, Scheduler::Lock& lock) {
    scheduler().await_turn(self_, now(), lock);
    if (service_->call(rank_, call, answered_))
      for (int other : answered_) scheduler().release(group_->world_rank(other), now());
    else
      scheduler().block(
          self_, [] { return std::string("the answer of a service"); }, lock);
  }
  void receive(const ServiceCall& call, Scheduler::Lock& lock) {
    const int64_t bytes = call.out.defined() ? call.out.bytes() : 0;
    // The time at which it was answered is the earliest that this rank was released with.
    scheduler().await_turn(self_, scheduler().earliest(self_), lock);
    const Interval back = group_->network().answer(now(), bytes, service_->link);
    if (bytes > 0) tell(back, "pull", bytes);
    scheduler().advance(self_, back.end);
  }
  void tell(Interval time, const char* what, int64_t bytes) {
    group_->world().run->timeline.communicated(self_, time, what, {}, static_cast<double>(bytes));
  }

  std::shared_ptr<Group> group_;
  int rank_;
  int self_;  // in the world
  std::shared_ptr<Service> service_;
  std::vector<int> answered_;  // scratch
};

}  // namespace

std::unique_ptr<ServicePort> connect(std::shared_ptr<Group> group, int rank,
                                     std::shared_ptr<Service> service) {
  return std::make_unique<Port>(std::move(group), rank, std::move(service));
}

}  // namespace lockstep::distributed::virtual_cluster
