#pragma once
#include <string>
#include <vector>

#include "core/state_io.h"
#include "distributed/comm/service.h"
#include "distributed/service_options.h"

namespace lockstep::distributed {

/// What becomes of a push.
enum class PushOutcome {
  accepted,    ///< applied, or kept until its clock is complete
  late,        ///< its clock was over; dropped
  dropped,     ///< staler than drop_older
  not_finite,  ///< NaN or infinity; not applied
  empty,       ///< no samples in it; not applied
  duplicate,   ///< this worker's push of this clock has been here already
  early,       ///< an earlier clock is missing: not taken, push it again after that
};

/// The logic behind a parameter service: the parameters that count and their optimiser. Steps
/// happen one at a time, whole; what is pulled is one version. Every push is counted once,
/// whatever becomes of it, and repeats of it (a reply was lost) are known by worker and clock.
///
/// A worker begins at clock 0 with version 0. It pushes the gradient of clock c and then pulls for
/// clock c + 1, which waits for the bound and, with a quorum, until clock c is over. With a quorum
/// it may leave out clocks that are over anyway: a pull says which one is open.
class ParameterStore final : public ServiceLogic {
 public:
  /// What calls want; numbers and tensors as in ParameterService.
  enum Kind {
    push,
    pull,
    peek,
    leave,
    await_all_left,
    stop,
    statistics,
    state_bytes,
    read_state,
    write_state
  };

  explicit ParameterStore(const ServiceSetup& setup);

  bool handle(int rank, ServiceCall& call) override;
  ServiceHold hold(int rank, const ServiceCall& call) const override;

  /// Parameters, optimiser, clocks, counts. UsageError while gradients wait for their clock's
  /// others.
  void state(StateIo& io);
  const Tensor& parameters() const { return view_.param; }
  int64_t version() const { return statistics_.steps; }
  /// The clock whose gradients are gathered; none is where they are applied at once.
  int64_t open_clock() const { return open_; }
  const ServiceStatistics& counts() const { return statistics_; }

 private:
  struct Worker {
    bool here = true;
    int64_t next = 0;     // the clock of its next push
    int64_t running = 0;  // the clock it has begun last
    int64_t pulled = 0;   // the version it computes on
    Tensor seen;          // those parameters, for compensation
    // Of the open clock:
    enum { nothing, without_gradient, gradient } pushed = nothing;
    bool counts = false;  // towards the quorum
    bool lost = false;    // its gradient was not finite
    ServiceCall kept;
    std::vector<uint8_t> used;
    int64_t staleness = 0;
  };

  bool gathers() const { return options_.quorum != ServiceOptions::kAtOnce; }
  int64_t slowest(const Worker* but = nullptr) const;  // the least clock of those who are here
  void take(int rank, ServiceCall& call);
  Tensor decode(int rank, const Tensor& frame) const;
  PushOutcome judge(const Worker& worker, const ServiceCall& call) const;
  void keep(Worker& worker, const ServiceCall& call);
  bool may_begin(const Worker& worker, int64_t clock) const;
  bool give(Worker& worker, ServiceCall& call);
  void assert_bound();

  bool complete() const;
  void close_clock();
  void add_up(const std::vector<int>& from);
  void apply_one(Worker& worker, const ServiceCall& call, int rank);
  void compensate(const Worker& worker, double factor);
  /// Makes the step of what lies in the gradient buffer; `scale`: what it carries.
  void step(const ServiceCall& terms, double scale, double weight, int64_t staleness);
  void report(const Tensor& out) const;

  ServiceOptions options_;
  ReduceSpec reduction_;
  DType wire_;
  std::shared_ptr<const PushCode> code_;  // null: gradients come as they are
  Tensor decoded_;                        // scratch: what a frame says
  std::vector<optim::ParamSlice> slices_;
  optim::FlatView view_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<Worker> workers_;
  int64_t open_ = 0;
  bool overflowed_ = false;  // the last clock, on the wire: it made no step
  ServiceStatistics statistics_;
  std::string stopped_;

  std::vector<uint8_t> used_;     // scratch: by slice
  std::vector<const void*> ins_;  // scratch: a clock's gradients
  std::vector<int> arrived_;      // scratch: whose they are
  Tensor sum_;                    // scratch: on the wire's dtype, where that differs
  Tensor term_;                   // scratch of compensation
};

/// What ServiceStatistics are as a tensor: i64, a row a worker and one for the totals.
Tensor statistics_tensor(int workers);
ServiceStatistics read_statistics(const Tensor& rows);

}  // namespace lockstep::distributed
