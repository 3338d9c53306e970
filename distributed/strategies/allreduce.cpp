// Synchronous data parallelism with buckets (Li et al., VLDB 2020, arXiv:2006.15704): the gradients
// of a bucket are summed over ranks as soon as backward has finished them, while it goes on with
// the layers below. Moves 2·P·(n-1)/n elements per rank and step, in one all-reduce a bucket.
#include "distributed/strategies/all_reduced.h"

namespace lockstep::distributed {
namespace {

class AllReduce final : public AllReduced {
 public:
  explicit AllReduce(const Spec&) {}

  std::string_view tables() const override { return "gathered"; }
};

const Register<SyncStrategy, AllReduce> registered{
    "allreduce", "buckets are all-reduced while backward goes on"};

}  // namespace
}  // namespace lockstep::distributed
