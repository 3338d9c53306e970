// Synchronous SGD with backup workers (Chen et al. 2016, "Revisiting Distributed Synchronous SGD",
// arXiv:1604.00981). A parameter service makes step c of the first K of n gradients of clock c, and
// does not wait for the others:
//     w ← w - η · Σ_{r among the first K} g_r / Σ weight_r        g_r: a sum over r's samples
// Whoever comes later is answered "late": its gradient is dropped and counted, with its samples and
// whose they were; it pulls the newest parameters and leaves out the steps that are over by then
// (Reducer::next_step), whose data it never sees: counted, too.
// Moves P elements of the wire's dtype to the service and P parameters back, per step and rank;
// the service keeps K gradients at a time. A rank that leaves is not waited for.
// With keep=n this is `allreduce`, bit for bit. Otherwise who is late decides: on `virtual` a run
// repeats bit for bit, in real time it does not.
#include "core/check.h"
#include "distributed/strategies/on_service.h"

namespace lockstep::distributed {
namespace {

class Backup final : public OnService {
 public:
  explicit Backup(const Spec& spec) : OnService({}), keep_(spec.integer("keep", 0, {.min = 1})) {}

  void attach(SyncContext& context) override {
    const int ranks = context.comm->size();
    check(keep_ <= ranks, "[backup] keep; expected at most {}, the ranks there are, got {}", ranks,
          keep_);
    const int keep = keep_ > 0 ? static_cast<int>(keep_) : std::max(ranks - 1, 1);
    options_.quorum = keep == ranks ? ServiceOptions::kEverybody : keep;
    OnService::attach(context);
  }

 private:
  int64_t keep_;  // 0: all but one
};

const Register<SyncStrategy, Backup> registered{
    "backup",
    "a step is made of the first K of n gradients; late ones are dropped",
    {{"keep", "K, gradients that make a step (all ranks but one)"}}};

}  // namespace
}  // namespace lockstep::distributed
