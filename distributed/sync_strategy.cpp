#include "distributed/sync_strategy.h"

namespace lockstep::distributed {

double all_reduce_bytes(const SyncContext& context) {
  double bytes = 0;
  for (const GradientBucket& bucket : context.buckets)
    bytes += context.exchange->bytes(bucket.view);
  return bytes;
}

double all_reduce_bytes(const SyncContext& context, int64_t bytes) {
  const int n = context.comm->size();
  return 2.0 * (n - 1) / n * static_cast<double>(bytes);
}

std::unique_ptr<SyncStrategy> make_strategy(const Spec& spec) {
  return Registry<SyncStrategy>::instance().make(spec);
}

}  // namespace lockstep::distributed
