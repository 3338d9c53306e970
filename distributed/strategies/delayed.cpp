// Delayed gradients: every rank applies the averaged gradient of d steps ago, so that staleness can
// be studied with nothing else changed (Langford, Smola & Zinkevich 2009, arXiv:0911.0491); with
// d = 1 it is the pipelining of Pipe-SGD (Li et al. 2018, arXiv:1811.03619), whose exchange is
// hidden behind the next forward and backward:
//     w ← w - lr·g(t-d)      g(s): the mean gradient of window s at the weights that window saw
// `delayed:0` is `allreduce`. Moves 2·P·(n-1)/n elements per rank and step, in one all-reduce a
// bucket. With d > 0 these start in the update of their own step, after the small exchange of the
// verdict, which would queue behind them, and are waited for in the update of d steps later.
// Where a code is summed by several collectives only the last one is: all others are over before
// the step ends, so that the next window finds its residuals.
//
// A verdict travels with its gradient: loss scale, weight, parameters that were used. Clipping uses
// the norm of the gradient that is applied, in its own step. What is counted are windows with a
// gradient: one that is skipped (not finite on some rank, no data) is not sent, applies nothing and
// leaves the queue as it was. A sum that overflows on its wire is found when it arrives; it is not
// applied, and that step counts as skipped; a dynamic loss scale hears of it d steps late. In the
// first d steps there is nothing to apply; the last d gradients of a run are never applied, see
// waiting(). Memory: d gradients more.
#include <fmt/format.h>

#include <algorithm>

#include "core/kernels/elementwise.h"
#include "distributed/sync_strategy.h"

namespace lockstep::distributed {
namespace {

class Delayed final : public SyncStrategy {
 public:
  explicit Delayed(const Spec& spec)
      : queue_(static_cast<size_t>(spec.integer("steps", 1, {.min = 0, .max = 1024}))) {}

  void attach(SyncContext& context) override {
    SyncStrategy::attach(context);
    if (queue_.empty()) return;
    const auto slices = static_cast<int64_t>(context.params->slices().size());
    applied_used_ = zeros({slices}, DType::u8);
    int64_t longest = 0;
    for (const GradientBucket& bucket : context.buckets)
      longest = std::max(longest, bucket.view.numel());
    scratch_ = Tensor::empty({longest}, context.params->all().grad.dtype());
    for (const GradientBucket& bucket : context.buckets)
      scratch_of_.push_back(scratch_.slice(0, bucket.view.numel()));
    for (Entry& entry : queue_) {
      entry.gradient = zeros_like(context.params->all().grad);
      entry.used = zeros({slices}, DType::u8);
      for (const GradientBucket& bucket : context.buckets) {
        const int64_t begin = bucket.view.offset;
        entry.ranges.push_back(bucket.view);
        entry.ranges.back().grad = entry.gradient.slice(begin, begin + bucket.view.numel());
      }
      entry.works.resize(context.buckets.size());
    }
  }

  void on_bucket(GradientBucket& bucket) override {
    if (queue_.empty())
      bucket.work = context_->exchange->sum(bucket.view, {"bucket", bucket.index});
  }

  // The oldest gradient and this window's change places.
  StepVerdict judge(const StepVerdict& fresh) override {
    if (queue_.empty() || !fresh.apply) return fresh;
    Entry& entry = queue_[next_];
    settle(entry);
    for (size_t i = 0; i < entry.ranges.size(); ++i) {
      const Tensor &mine = context_->buckets[i].view.grad, &oldest = entry.ranges[i].grad;
      kernel::copy(scratch_of_[i], mine);
      kernel::copy(mine, oldest);
      kernel::copy(oldest, scratch_of_[i]);
    }
    std::swap(entry.used, applied_used_);
    std::copy(fresh.used.begin(), fresh.used.end(), entry.used.mutable_data<uint8_t>());
    StepVerdict oldest = fresh;
    oldest.apply = entry.filled != 0 && entry.finite != 0;
    oldest.finite = entry.filled == 0 || entry.finite != 0;
    oldest.factor = static_cast<float>(entry.factor);
    oldest.weight = entry.weight;
    oldest.used = {applied_used_.data<uint8_t>(), static_cast<size_t>(applied_used_.numel())};
    entry.filled = entry.finite = 1;
    entry.factor = double{fresh.factor};
    entry.weight = fresh.weight;
    sending_ = &entry;
    return oldest;
  }

  StepVerdict step(Optimizer& optimizer, const StepVerdict& verdict) override {
    if (sending_ != nullptr) {
      for (size_t i = 0; i < sending_->ranges.size(); ++i)
        sending_->works[i] =
            context_->exchange->sum(sending_->ranges[i], {"bucket", static_cast<int64_t>(i)});
      sending_ = nullptr;
      context_->exchange->resolve(true);  // residuals are those of what was sent
      next_ = (next_ + 1) % static_cast<int64_t>(queue_.size());
    }
    return SyncStrategy::step(optimizer, verdict);
  }

  void resolve(bool applied) override {
    if (queue_.empty()) return SyncStrategy::resolve(applied);
    context_->exchange->resolve(false);  // nothing, where it was sent
  }

  bool synchronous() const override { return queue_.empty(); }
  int64_t waiting() const override {
    return std::count_if(queue_.begin(), queue_.end(), [](const Entry& e) { return e.filled; });
  }
  double bytes_per_step() const override { return all_reduce_bytes(*context_); }

  void state(StateIo& io) override {
    SyncStrategy::state(io);
    if (queue_.empty()) return;
    io.value("delayed.next", next_, Fold::replicated);
    for (size_t i = 0; i < queue_.size(); ++i) {
      Entry& entry = queue_[i];
      const auto name = [i](const char* piece) { return fmt::format("delayed.{}.{}", i, piece); };
      settle(entry);
      io.flat(name("gradient"), entry.gradient, Fold::replicated);
      io.flat(name("used"), entry.used, Fold::replicated);
      io.value(name("factor"), entry.factor, Fold::replicated);
      io.value(name("weight"), entry.weight, Fold::replicated);
      io.value(name("filled"), entry.filled, Fold::replicated);
      io.value(name("finite"), entry.finite, Fold::replicated);
    }
  }

 private:
  struct Entry {
    Tensor gradient;                      // Σ over ranks, as in the flat buffer
    Tensor used;                          // u8, a flag per slice
    std::vector<optim::FlatView> ranges;  // of `gradient`, by bucket
    std::vector<WorkPtr> works;           // on their way; null: arrived
    double factor = 0, weight = 0;        // of its verdict
    int64_t filled = 0, finite = 1;       // 0 or 1
  };

  void settle(Entry& entry) {
    for (WorkPtr& work : entry.works) {
      if (work) work->wait();
      work.reset();
    }
    if (context_->exchange->take_overflow()) entry.finite = 0;
  }

  std::vector<Entry> queue_;  // a ring
  int64_t next_ = 0;          // the oldest, and where the next one goes
  Entry* sending_ = nullptr;  // holds this window's gradient, which step() sends
  Tensor applied_used_;       // flags of the verdict that judge() returned
  Tensor scratch_;
  std::vector<Tensor> scratch_of_;  // by bucket
};

const Register<SyncStrategy, Delayed> registered{
    "delayed",
    "the averaged gradient of d steps ago: staleness alone, exchanges hidden behind the next step",
    {{"steps", "d; 0 is allreduce (1)"}}};

}  // namespace
}  // namespace lockstep::distributed
