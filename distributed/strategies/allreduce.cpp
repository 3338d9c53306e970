// Synchronous data parallelism with buckets (Li et al., VLDB 2020, arXiv:2006.15704): the gradients
// of a bucket are summed over ranks as soon as backward has finished them, while it goes on with
// the layers below. Moves 2·P·(n-1)/n elements per rank and step, in one all-reduce a bucket.
#include "distributed/sync_strategy.h"

namespace lockstep::distributed {
namespace {

class AllReduce final : public SyncStrategy {
 public:
  explicit AllReduce(const Spec&) {}

  void on_bucket(GradientBucket& bucket) override {
    bucket.work = context_->exchange->sum(bucket.view, {"bucket", bucket.index});
  }

  double bytes_per_step() const override { return all_reduce_bytes(*context_); }
  std::string_view tables() const override { return "gathered"; }
};

const Register<SyncStrategy, AllReduce> registered{
    "allreduce", "buckets are all-reduced while backward goes on"};

}  // namespace
}  // namespace lockstep::distributed
