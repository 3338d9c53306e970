// Reductions that overlap with backward, under random delays and over many steps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "distributed/comm/launch.h"
#include "models.h"
#include "optim/optimizer.h"

namespace lockstep::distributed {
namespace {

using autograd::backward;

// Sleeps now and then, differently on each rank.
class Delays {
 public:
  explicit Delays(int rank) : random_(5, RandomStream::tests, static_cast<uint32_t>(rank)) {}
  void maybe() {
    const uint32_t word = random_.word(next_++);
    if (word % 10 == 0) std::this_thread::sleep_for(std::chrono::microseconds((word >> 8) % 5000));
  }

 private:
  Random random_;
  uint64_t next_ = 0;
};

// Forwards to `allreduce`, with delays around the hand-over of a bucket.
class DelayedAllReduce final : public SyncStrategy {
 public:
  explicit DelayedAllReduce(Delays& delays) : delays_(delays) {}
  void attach(SyncContext& context) override { inner_->attach(context); }
  void on_bucket(GradientBucket& bucket) override {
    delays_.maybe();
    inner_->on_bucket(bucket);
    delays_.maybe();
  }

 private:
  std::unique_ptr<SyncStrategy> inner_ = make_strategy("allreduce");
  Delays& delays_;
};

TEST(KnownFaults, O33_OverlappedReductionIsNeitherStaleNorEarlyNorDouble) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<Linears::Spec> specs;
    std::vector<std::pair<int, float>> gradients;
    for (int i = 0; i < 20; ++i) {
      specs.push_back({fmt::format("p{}", i), 50 + 37 * i});
      gradients.emplace_back(i, 0.0f);
    }
    Linears model(specs);
    optim::FlatParams params(model);
    Delays delays(comm.rank());
    DelayedAllReduce strategy(delays);
    Reducer reducer(params, comm, strategy, {.bucket_bytes = 8000, .first_bucket_bytes = 2000});
    const auto buckets = static_cast<int64_t>(reducer.buckets().size());
    ASSERT_GE(buckets, 3);
    for (int t = 1; t <= 200; ++t) {
      for (auto& [i, gradient] : gradients) gradient = static_cast<float>(t * (comm.rank() + 1));
      {
        const auto micro = reducer.micro();
        delays.maybe();
        backward(model.loss(gradients));
      }
      const StepVerdict verdict = reducer.finish_backward(optim::GradScaler());
      for (float g : values(params.all().grad))
        ASSERT_EQ(g * verdict.factor, 1.5f * static_cast<float>(t)) << "iteration " << t;
      ASSERT_EQ(comm.stats()[Verb::all_reduce].calls, t * buckets);
      delays.maybe();
      reducer.finish_step(t - 1);
    }
  });
}

}  // namespace
}  // namespace lockstep::distributed
