// Dense layers synchronous, embedding tables asynchronous (Lian et al. 2021, "Persia",
// arXiv:2111.05897): dense gradients as under `allreduce`, while each rank fetches rows from one
// copy of the tables and pushes their gradients there when it has them (tables/async.cpp, or
// tables/hogwild.cpp without a lock). Rows are many and seldom touched by two ranks at once, so
// that their gradients are hardly stale; dense parameters are few and touched by all. Ranks share a
// verdict: one rank's gradient that is not finite, of a table, too, skips the step everywhere, and
// a rank's push carries its share of the mean over all. Moves 2·P·(n-1)/n elements of dense
// gradients per rank and step.
#include "distributed/strategies/all_reduced.h"

namespace lockstep::distributed {
namespace {

class Hybrid final : public AllReduced {
 public:
  explicit Hybrid(const Spec& spec) : tables_(spec.text("tables", "async", {"async", "hogwild"})) {}

  std::string_view tables() const override { return tables_; }
  // Dense parameters step as one rank's would; tables do not.
  bool synchronous() const override { return false; }

 private:
  std::string tables_;
};

const Register<SyncStrategy, Hybrid> registered{
    "hybrid",
    "allreduce, with embedding tables in a service that ranks step one by one",
    {{"tables", "async, or hogwild: memory that ranks share, without a lock (async)"}}};

}  // namespace
}  // namespace lockstep::distributed
