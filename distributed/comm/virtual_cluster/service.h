#pragma once
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
      : logic_(std::move(logic)), waiting_(static_cast<size_t>(ranks)) {}

  /// A rank's call, at its turn: whether it was answered. Then those who wait are asked again; the
  /// others that could be answered now are left in `answered`.
  bool call(int rank, ServiceCall& call, std::vector<int>& answered);
  ServerLink link;

 private:
  std::unique_ptr<ServiceLogic> logic_;
  std::vector<ServiceCall*> waiting_;  // by rank; null: it does not
};

/// A rank's connection: calls take the time of their bytes and happen in the order of time.
std::unique_ptr<ServicePort> connect(std::shared_ptr<Group> group, int rank,
                                     std::shared_ptr<Service> service);

}  // namespace lockstep::distributed::virtual_cluster
