// The version to read first: backward, then one all-reduce a parameter, one after the other. The
// same sums as `allreduce`, bit for bit, and as many bytes; but nothing is hidden behind backward,
// and every parameter pays a latency. Moves 2·P·(n-1)/n elements per rank and step.
#include "distributed/sync_strategy.h"

namespace lockstep::distributed {
namespace {

class Naive final : public SyncStrategy {
 public:
  explicit Naive(const Spec&) {}

  void before_step() override {
    for (size_t i = 0; i < context_->params->slices().size(); ++i)
      context_->exchange->sum(parameter(i), {"parameter", static_cast<int64_t>(i)})->wait();
  }

  double bytes_per_step() const override {
    double bytes = 0;
    for (size_t i = 0; i < context_->params->slices().size(); ++i)
      bytes += context_->exchange->bytes(parameter(i));
    return bytes;
  }
  std::string_view tables() const override { return "gathered"; }

 private:
  optim::FlatView parameter(size_t i) const {
    const optim::FlatView& all = context_->params->all();
    return all.range(all.slices[i].begin, all.slices[i].end);
  }
};

const Register<SyncStrategy, Naive> registered{
    "naive", "one all-reduce a parameter after backward: the teaching version"};

}  // namespace
}  // namespace lockstep::distributed
