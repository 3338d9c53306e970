#include "apps/training/measure_compute.h"

#include "apps/training/median_seconds.h"
#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "optim/flat_params.h"

namespace lockstep::apps {

double measure_compute(const Training& training) {
  const RunOptions& o = training.options;
  double seconds = 0;
  distributed::run_ranks(1, {.backend = "solo"}, [&](distributed::Communicator& comm) {
    const ThreadBudget budget(static_cast<int>(o.threads));
    const auto workload = training.make(comm, 0);
    const autograd::Autocast autocast(o.precision.compute_dtype());
    const optim::FlatParams params(workload->model(), o.precision.buffers());
    const int64_t whole = o.batch * training.weight_per_sample();
    seconds = median_seconds(
        [&] { return workload->next() == whole; },  // not the short last step of an epoch
        [&] { autograd::backward(workload->loss_sum()); });
  });
  return seconds;
}

}  // namespace lockstep::apps
