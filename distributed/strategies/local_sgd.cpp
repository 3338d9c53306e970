// Local SGD (Stich 2019, arXiv:1805.09767) and, with a warm-up, post-local SGD (Lin et al. 2020,
// arXiv:1808.07217): every rank trains alone, and after every H steps the parameters are
// replaced by their mean over ranks:
//     w_r ← w_r - lr·g_r(w_r), H times; then w_r ← 1/n · Σ_r w_r
// Moves 2·P·(n-1)/n f32 per rank at the end of a round, hence 2·P·(n-1)/(n·H) a step, and with
// moments=average as much again for every moment; nothing in between. In the warm-up it moves
// gradients, as allreduce does. The f32 master is averaged where there is one.
// What counts as a step, and what happens to moments: see LocalRounds.
#include "distributed/strategies/local_rounds.h"

namespace lockstep::distributed {
namespace {

class LocalSgd final : public LocalRounds {
 public:
  explicit LocalSgd(const Spec& spec) : LocalRounds(spec) {}

 private:
  void meet(Optimizer& optimizer) override {
    context_->comm
        ->all_reduce(optimizer.authority().param, {.op = ReduceOp::mean, .tag = {"parameters", 0}})
        ->wait();
    optimizer.publish();
  }
};

const Register<SyncStrategy, LocalSgd> registered{
    "local_sgd", "every rank trains alone; parameters are averaged every H steps",
    LocalRounds::settings()};

}  // namespace
}  // namespace lockstep::distributed
