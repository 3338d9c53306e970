#pragma once
#include "distributed/sync_strategy.h"

namespace lockstep::distributed {

/// Dense gradients as under `allreduce`: the gradients of a bucket are summed over ranks as soon as
/// backward has finished them, while it goes on with the layers below.
class AllReduced : public SyncStrategy {
 public:
  void on_bucket(GradientBucket& bucket) override {
    bucket.work = context_->exchange->sum(bucket.view, {"bucket", bucket.index});
  }
  double bytes_per_step() const override { return all_reduce_bytes(*context_); }
};

}  // namespace lockstep::distributed
