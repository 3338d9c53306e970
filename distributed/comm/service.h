#pragma once
#include <functional>
#include <memory>

#include "core/tensor.h"

namespace lockstep::distributed {

/// What travels between a worker and a service: a few numbers and at most one tensor each way.
struct ServiceCall {
  int kind = 0;       ///< what is wanted; the service's own numbering
  int64_t clock = 0;  ///< the worker's count of what it calls for
  double weight = 0;  ///< of `in`
  Tensor in;          ///< sent along; undefined: nothing
  Tensor out;         ///< room for what comes back; undefined: nothing
  int outcome = 0;    ///< set by the service, like all that follows
  int64_t version = 0;
  int64_t staleness = 0;
};

/// The one object behind a service, whichever rank it lives on. Never called by two at once.
class ServiceLogic {
 public:
  virtual ~ServiceLogic() = default;
  /// Answers a rank's call: true. Not yet: false; the rank waits, and is asked for again, in the
  /// order of the ranks, after every call that was answered. What it throws, the caller gets.
  virtual bool handle(int rank, ServiceCall& call) = 0;
};
using MakeServiceLogic = std::function<std::unique_ptr<ServiceLogic>()>;

/// A rank's connection to a service.
class ServicePort {
 public:
  virtual ~ServicePort() = default;
  /// Sends a call and waits for its answer. SystemError(communication) at the communicator's
  /// time-out, when the group has failed, and when all ranks wait and none of them can go on.
  virtual void call(ServiceCall& call) = 0;
};

}  // namespace lockstep::distributed
