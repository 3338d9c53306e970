#pragma once
#include <exception>
#include <memory>
#include <vector>

#include "distributed/comm/service.h"
#include "distributed/comm/virtual_cluster/network.h"

namespace lockstep::distributed::virtual_cluster {

class Group;

/// A service and its link. Guarded by the scheduler's lock.
class Service {
 public:
  Service(std::unique_ptr<ServiceLogic> logic, int ranks)
      : logic_(std::move(logic)), places_(static_cast<size_t>(ranks)) {}

  /// A rank's call, at its turn: whether it was answered; what answering throws, the caller gets.
  /// Then those who wait are asked again; those whose waiting is over are left in `released`.
  bool call(int rank, ServiceCall& call, std::vector<int>& released);
  /// A rank whose call was not answered waits no longer. What answering threw; null: nothing.
  std::exception_ptr end_wait(int rank);
  ServerLink link;

 private:
  /// A rank that waits for its answer.
  struct Place {
    ServiceCall* call = nullptr;  // null: it does not wait, or not any more
    std::exception_ptr error;     // what answering threw
  };
  bool ask_again(int rank);  // whether its waiting is over

  std::unique_ptr<ServiceLogic> logic_;
  std::vector<Place> places_;  // by rank
};

/// A rank's connection: calls take the time of their bytes and happen in the order of time.
std::unique_ptr<ServicePort> connect(std::shared_ptr<Group> group, int rank,
                                     std::shared_ptr<Service> service);

}  // namespace lockstep::distributed::virtual_cluster
