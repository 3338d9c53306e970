#include "distributed/comm/virtual_cluster/service.h"

#include <utility>

#include "distributed/comm/virtual_cluster/group.h"

namespace lockstep::distributed::virtual_cluster {

bool Service::call(int rank, ServiceCall& call, std::vector<int>& released) {
  released.clear();
  if (!logic_->handle(rank, call)) {
    places_[rank] = {.call = &call};
    return false;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (int other = 0; other < static_cast<int>(places_.size()) && !changed; ++other) {
      changed = ask_again(other);
      if (changed) released.push_back(other);
    }
  }
  return true;
}

bool Service::ask_again(int rank) {
  Place& place = places_[rank];
  if (place.call == nullptr) return false;
  try {
    if (!logic_->handle(rank, *place.call)) return false;
  } catch (...) {  // not the fault of the one whose call let it be asked
    place.error = std::current_exception();
  }
  place.call = nullptr;
  return true;
}

std::exception_ptr Service::end_wait(int rank) { return std::exchange(places_[rank], {}).error; }

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
    const int64_t bytes = call.sent();
    const Interval request = group_->network().push(now(), bytes, service_->link);
    if (bytes > 0) tell(request, "push", bytes);
    scheduler().advance(self_, request.end);
  }
  // At this rank's clock: after all calls that come to the service before (time, rank), and before
  // all others, whatever the threads do.
  void answer(ServiceCall& call, Scheduler::Lock& lock) {
    scheduler().await_turn(self_, now(), lock);
    if (service_->call(rank_, call, released_)) {
      for (int other : released_) scheduler().release(group_->world_rank(other), now());
      return;
    }
    try {
      scheduler().block(
          self_, [] { return std::string("the answer of a service"); }, lock);
    } catch (...) {  // the end for all ranks: nobody may ask for this call again
      service_->end_wait(rank_);
      throw;
    }
    // The time at which it was answered is the earliest that this rank was released with.
    scheduler().advance(self_, scheduler().earliest(self_));
    if (const std::exception_ptr error = service_->end_wait(rank_)) std::rethrow_exception(error);
  }
  void receive(const ServiceCall& call, Scheduler::Lock& lock) {
    const int64_t bytes = call.received();
    scheduler().await_turn(self_, now(), lock);
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
  std::vector<int> released_;  // scratch
};

}  // namespace

std::unique_ptr<ServicePort> connect(std::shared_ptr<Group> group, int rank,
                                     std::shared_ptr<Service> service) {
  return std::make_unique<Port>(std::move(group), rank, std::move(service));
}

}  // namespace lockstep::distributed::virtual_cluster
