#include "distributed/sync_strategy.h"

namespace lockstep::distributed {

double all_reduce_bytes(const SyncContext& context) {
  const int n = context.comm->size();
  return 2.0 * (n - 1) / n * static_cast<double>(context.params->all().grad.bytes());
}

std::unique_ptr<SyncStrategy> make_strategy(const Spec& spec) {
  return Registry<SyncStrategy>::instance().make(spec);
}

}  // namespace lockstep::distributed
