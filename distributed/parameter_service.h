#pragma once
#include <memory>

#include "distributed/comm/communicator.h"
#include "distributed/parameter_store.h"

namespace lockstep::distributed {

/// A worker's gradient on its way to a parameter service.
struct Push {
  int64_t clock = 0;
  Tensor grad;        ///< sum over samples, flat, in the wire's dtype, or a frame of ServiceSetup's
                      ///< code; undefined: it is not finite
  double weight = 0;  ///< samples or tokens in it; 0: none, a push all the same
  double scale = 1;   ///< what it carries, a power of two: undone before anything is made of it
  double max_norm = 0;  ///< the step's gradient is clipped to this norm; 0: not
  /// What makes the mean of the clock's sum, where the workers have agreed on it; 0: they have not,
  /// and it is 1 / (scale · Σ weight).
  double factor = 0;
  double lr = 0;
  std::span<const uint8_t> used;  ///< a flag per slice; empty: all
};
struct PushReply {
  PushOutcome outcome = PushOutcome::accepted;
  int64_t version = 0;    ///< the service's, afterwards
  int64_t staleness = 0;  ///< versions behind when it came
};
struct Snapshot {
  int64_t version = 0;
  int64_t clock = 0;        ///< that is open: gradients of clocks before it come too late
  bool overflowed = false;  ///< the clock before it made no step: it was not finite on the wire
};

/// A worker's connection to the one copy of the parameters that counts; see ParameterStore for what
/// happens there. It lives in real or virtual time, as the communicator does. Waiting ends in an
/// error at the communicator's time-out, when the group fails and when the service is stopped.
class ParameterService {
 public:
  /// Opens it; a collective.
  ParameterService(Communicator& comm, const ServiceSetup& setup);
  /// Leaves.
  ~ParameterService();
  ParameterService(const ParameterService&) = delete;
  ParameterService& operator=(const ParameterService&) = delete;

  PushReply push(const Push& push);
  /// Writes one version of all parameters to `out`, to compute clock `clock` on: waits until the
  /// bound permits that and, with a quorum, until the clock before it is over.
  Snapshot pull(int64_t clock, const Tensor& out);
  /// What there is now, for looking at only. In modelled time it takes none, like all that books
  /// and evaluation ask for: what they see is the service at this worker's clock.
  Snapshot peek(const Tensor& out);
  /// This worker will push no more; neither bound nor quorum waits for it.
  void leave();
  /// Waits until all workers have left, while the others still call.
  void await_all_left();
  /// Ends all workers: what they wait for or call next fails.
  void stop();
  ServiceStatistics statistics();  ///< takes no modelled time
  /// State of the service, in no modelled time. A collective, between a pull and the next push;
  /// loading on any number of ranks is loading once.
  void state(StateIo& io);

 private:
  Communicator& comm_;
  int workers_;
  std::unique_ptr<ServicePort> port_;
  bool left_ = false;
};

}  // namespace lockstep::distributed
