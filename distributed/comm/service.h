#pragma once
#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace lockstep::distributed {

/// What travels between a worker and a service: a few numbers and at most one tensor each way.
struct ServiceCall {
  int kind = 0;                     ///< what is wanted; the service's own numbering
  int64_t clock = 0;                ///< the worker's count of what it calls for
  double weight = 0;                ///< of `in`
  std::array<double, 4> numbers{};  ///< further ones, of the service's own meaning
  Tensor in;                        ///< sent along; undefined: nothing
  std::span<const uint8_t> flags;   ///< sent along with it
  Tensor out;                       ///< room for what comes back; undefined: nothing
  bool untimed = false;             ///< takes no time where time is modelled: for the books
  int outcome = 0;                  ///< set by the service, like all that follows
  int64_t version = 0;
  int64_t staleness = 0;
  std::shared_ptr<void> shared;  ///< memory of this process; for ranks that are threads of it

  /// Bytes that travel: to the service, back, and both.
  int64_t sent() const {
    return static_cast<int64_t>(flags.size()) + (in.defined() ? in.bytes() : 0);
  }
  int64_t received() const { return out.defined() ? out.bytes() : 0; }
  int64_t bytes() const { return sent() + received(); }
};

/// Why a call was not answered yet, for the texts of errors.
struct ServiceHold {
  std::string what = "an answer";  ///< "the parameters of clock 3"
  std::vector<int> ranks;          ///< whose calls it waits for; none: not known
};

/// The one object behind a service, whichever rank it lives on. Never called by two at once.
class ServiceLogic {
 public:
  virtual ~ServiceLogic() = default;
  /// Answers a rank's call: true. Not yet: false; the rank waits, and is asked for again, in the
  /// order of the ranks, after every call that was answered. What it throws, the caller gets.
  virtual bool handle(int rank, ServiceCall& call) = 0;
  /// What a call of this rank that was not answered waits for.
  virtual ServiceHold hold(int /*rank*/, const ServiceCall& /*call*/) const { return {}; }
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
