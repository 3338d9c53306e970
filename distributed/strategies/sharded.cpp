// Dense layers data parallel, embedding tables model parallel (as DLRM is trained: Naumov et al.
// 2019, arXiv:1906.00091): dense gradients as under `allreduce`; each rank owns a range of the rows
// of all tables, looks rows up at their owners and sends gradients there (tables/sharded.cpp). A
// model without tables is trained as under `allreduce`, and one with tables, too, bit for bit,
// unless it is clipped. Moves 2·P·(n-1)/n elements of dense gradients per rank and step.
#include "distributed/strategies/all_reduced.h"

namespace lockstep::distributed {
namespace {

class Sharded final : public AllReduced {
 public:
  explicit Sharded(const Spec&) {}

  std::string_view tables() const override { return "sharded"; }
};

const Register<SyncStrategy, Sharded> registered{
    "sharded", "allreduce, with embedding tables cut over the ranks"};

}  // namespace
}  // namespace lockstep::distributed
