// What every registered code promises under every strategy that sends gradients. New codes and new
// strategies are tested by existing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "codes.h"
#include "core/memory_state.h"
#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "distributed/control.h"
#include "models.h"
#include "optim/optimizer.h"
#include "precision.h"

namespace lockstep::distributed {
namespace {

using autograd::backward;
using Setting = std::tuple<std::string, std::string>;

constexpr double kSamples = 4;  // of a micro-batch
constexpr double kRate = 1.0 / 64;

// Gradients as they leave backward, in the flat buffer's places.
class Raw final : public GradientObserver {
 public:
  void see(GradientStage stage, const optim::FlatView& range, const Tensor& values) override {
    if (stage != GradientStage::scaled) return;
    const Floats v = floats(values);
    if (window.size() < static_cast<size_t>(range.offset) + v.size())
      window.resize(static_cast<size_t>(range.offset) + v.size());
    std::ranges::copy(v, window.begin() + range.offset);
  }
  Floats window;
};

// One rank that trains the small net by plain SGD, so that what was applied can be read off it.
struct Trainer {
  Trainer(Communicator& c, const std::string& strategy_spec, const std::string& compress,
          const optim::Precision& precision = {}, int64_t bucket_bytes = 1500)
      : comm(c),
        net(1),
        params(net, precision),
        strategy(make_strategy(strategy_spec)),
        reducer(params, c, *strategy,
                {.bucket_bytes = bucket_bytes,
                 .first_bucket_bytes = 300,
                 .exchange = {.compress = compress}}),
        optimizer(optim::make_optimizer("sgd", params.all(), {.lr = kRate})) {
    reducer.start(*optimizer);
    reducer.observe(&raw);
    const size_t n = static_cast<size_t>(params.all().numel());
    sent.resize(n);
  }

  StepVerdict step(int64_t s, int micros = 1, float factor = 1) {
    const int64_t first = (s * comm.size() + comm.rank()) * micros;
    for (int k = 0; k < micros; ++k) {
      const auto micro = reducer.micro({.sync = k + 1 == micros ? Sync::now : Sync::later,
                                        .weight = kSamples,
                                        .scale = scaler.scale()});
      backward(scaler.scale(ops::scale(net.loss_sum(first + k), factor)));
    }
    const int64_t windows = reducer.exchange().windows();
    StepVerdict verdict = reducer.finish_backward(scaler);
    verdict = reducer.step(*optimizer, verdict);
    reducer.finish_step(s);
    if (reducer.exchange().windows() > windows)  // else it left no trace
      for (size_t i = 0; i < sent.size(); ++i) sent[i] += double{raw.window[i]} / scaler.scale();
    scaler.update(verdict);
    return verdict;
  }
  void state(StateIo& io) {
    Tensor parameters = params.all().param;
    io.flat("parameters", parameters, Fold::replicated);
    optimizer->state(io);
    strategy->state(io);
  }
  Floats weights() const { return floats(optimizer->weights()); }

  Communicator& comm;
  SmallNet net;
  optim::FlatParams params;
  std::unique_ptr<SyncStrategy> strategy;
  Reducer reducer;
  std::unique_ptr<Optimizer> optimizer;
  optim::GradScaler scaler{{.scale = 256, .nominal_weight = 8 * kSamples}};
  Raw raw;
  std::vector<double> sent;  // Σ raw gradients of windows that counted, unscaled
};

// Sums what waits to be sent: residuals, and what `delayed` has in its queue, which all ranks have.
class Waiting final : public StateIo {
 public:
  Waiting(int64_t numel, double weight, bool first) : weight_(weight), first_(first) {
    sum.resize(static_cast<size_t>(numel));
  }
  void flat(const std::string& name, Tensor& value, Fold) override {
    if (name.starts_with("exchange.residual")) add(floats(value), 1);
    if (name.starts_with("delayed.") && name.ends_with(".gradient")) queued_ = floats(value);
  }
  void value(const std::string&, int64_t&, Fold) override {}
  void value(const std::string& name, double& value, Fold) override {
    if (name.ends_with(".factor") && first_) add(queued_, value * weight_);
  }
  std::vector<double> sum;

 private:
  void add(const Floats& v, double factor) {
    for (size_t i = 0; i < v.size(); ++i) sum[i] += factor * double{v[i]};
  }
  double weight_;
  bool first_;
  Floats queued_;
};

std::vector<std::string> sending_strategies() {
  std::vector<std::string> specs = {"delayed:3", "async:bound=0", "async:bound=1", "backup:keep=1"},
                           chosen;
  for (const auto& entry : Registry<SyncStrategy>::instance().entries())
    specs.push_back(entry.name);
  for (const std::string& spec : specs)
    if (make_strategy(spec)->sends_gradients()) chosen.push_back(spec);
  return chosen;
}

class Compressed : public testing::TestWithParam<Setting> {
 protected:
  std::string code() const { return std::get<0>(GetParam()); }
  std::string strategy() const { return std::get<1>(GetParam()); }
  int ranks() const { return ranks_; }
  // f on 1, 2, … ranks: in one test, since each is a process.
  template <class F>
  void on_ranks(int most, F&& f) {
    for (ranks_ = 1; ranks_ <= most; ++ranks_) {
      SCOPED_TRACE(fmt::format("{} ranks", ranks_));
      f();
    }
  }

 private:
  int ranks_ = 1;
};
std::string name_of_setting(const testing::TestParamInfo<Setting>& setting) {
  const auto& [code, strategy] = setting.param;
  return fmt::format("{}_by_{}", test_name(code), test_name(strategy));
}
INSTANTIATE_TEST_SUITE_P(Contract, Compressed,
                         testing::Combine(testing::ValuesIn(all_codes()),
                                          testing::ValuesIn(sending_strategies())),
                         name_of_setting);

constexpr float kInf = std::numeric_limits<float>::infinity();

// What a strategy's mean is over, in weights of one rank.
double ranks_in_mean(const std::string& strategy, int ranks) {
  if (strategy == "async:bound=0") return ranks;
  if (strategy.starts_with("async") || strategy == "backup:keep=1") return 1;
  return strategy == "backup" ? std::max(ranks - 1, 1) : ranks;
}

// promise 5
TEST_P(Compressed, WithFeedbackAppliedAndWaitingIsWhatWasSent) {
  on_ranks(4, [&] {
    for (const optim::Precision& precision : all_precisions())
      for (const int micros : {1, 3}) {
        std::vector<double> missing;
        double largest = 0;
        std::mutex mutex;
        run_ranks(ranks(), [&](Communicator& comm) {
          const ThreadBudget budget(1);
          Trainer trainer(comm, strategy(), code() + "+ef", precision);
          const double weight = kSamples * micros * ranks_in_mean(strategy(), ranks());
          const Floats before = trainer.weights();
          for (int64_t s = 0; s < 5; ++s)  // one of which is skipped and halves the loss scale
            trainer.step(s, micros, s == 2 && comm.rank() == 0 ? kInf : 1);
          Waiting waiting(trainer.params.all().numel(), weight, comm.rank() == 0);
          trainer.strategy->state(waiting);
          trainer.reducer.end();
          const auto evaluating = trainer.reducer.evaluating(*trainer.optimizer);
          const Floats after = trainer.weights();
          const std::lock_guard lock(mutex);
          missing.resize(before.size());
          for (size_t i = 0; i < before.size(); ++i) {
            missing[i] += trainer.sent[i] - waiting.sum[i];
            largest = std::max(largest, std::abs(trainer.sent[i]));
            if (comm.rank() == 0)
              missing[i] -= (double{before[i]} - double{after[i]}) / kRate * weight;
          }
        });
        // What a narrow gradient buffer rounds of a sum is no residual's.
        const double digits = precision.accumulate_in == DType::f32   ? 0x1p-17
                              : precision.accumulate_in == DType::f16 ? 0x1p-10
                                                                      : 0x1p-7;
        double worst = 0;
        for (const double x : missing) worst = std::max(worst, std::abs(x));
        EXPECT_GT(largest, 0);
        EXPECT_LT(worst, 8 * ranks() * digits * largest)
            << name_of(precision.accumulate_in) << ", micro-batches " << micros;
      }
  });
}

// promise 4
TEST_P(Compressed, SameBitsOnAllRanks) {
  on_ranks(4, [&] {
    if (make_strategy(strategy())->steps_between_sync() == 0) return;  // promises none
    for (const char* feedback : {"", "+ef"}) {
      std::vector<Floats> weights(static_cast<size_t>(ranks()));
      run_ranks(ranks(), [&](Communicator& comm) {
        Trainer trainer(comm, strategy(), code() + feedback);
        for (int64_t s = 0; s < 4; ++s) trainer.step(s, 2);
        weights[comm.rank()] = trainer.weights();
      });
      for (const Floats& other : weights) EXPECT_EQ(other, weights[0]) << feedback;
    }
  });
}

// promise 6
TEST_P(Compressed, CountedBytesAreMovedBytesAndAtMostWhatIsClaimed) {
  on_ranks(4, [&] {
    for (const char* feedback : {"", "+ef"}) {
      double counted = 0, moved = 0, claimed = 0;
      std::mutex mutex;
      run_ranks(ranks(), [&](Communicator& comm) {
        Trainer trainer(comm, strategy(), code() + feedback);
        const int64_t before = comm.moved_bytes();
        comm.reset_stats();
        const bool shared = trainer.strategy->verdict_scope() == VerdictScope::all_ranks;
        const auto control = static_cast<double>(sizeof(Control) + trainer.params.slices().size());
        for (int64_t s = 0; s < 3; ++s) trainer.step(s, 2);
        comm.barrier();  // what was on its way has arrived
        const double mine = comm.stats().total().wire_bytes;
        const std::lock_guard lock(mutex);
        counted += mine;
        moved += static_cast<double>(comm.moved_bytes() - before);
        claimed +=
            3 * (trainer.strategy->bytes_per_step() + (shared ? (ranks() - 1) * control : 0));
      });
      EXPECT_NEAR(counted, moved, 1e-6 * moved) << feedback;
      EXPECT_LE(counted, claimed * (1 + 1e-12)) << feedback;
    }
  });
}

// Under strategies whose order is not that of real time.
class CompressedByOrder : public Compressed {};
std::vector<std::string> ordered() {
  std::vector<std::string> specs;
  for (const std::string& spec : sending_strategies())
    if (make_strategy(spec)->verdict_scope() == VerdictScope::all_ranks && spec != "backup")
      specs.push_back(spec);
  return specs;
}
INSTANTIATE_TEST_SUITE_P(Contract, CompressedByOrder,
                         testing::Combine(testing::ValuesIn(all_codes()),
                                          testing::ValuesIn(ordered())),
                         name_of_setting);

// promise 7
TEST_P(CompressedByOrder, StateSurvivesARoundTrip) {
  on_ranks(3, [&] {
    run_ranks(ranks(), [&](Communicator& comm) {
      Trainer trainer(comm, strategy(), code() + "+ef");
      for (int64_t s = 0; s < 3; ++s) trainer.step(s);
      MemoryState kept, again;
      kept.save([&](StateIo& io) { trainer.state(io); });
      for (int64_t s = 3; s < 6; ++s) trainer.step(s);

      Trainer resumed(comm, strategy(), code() + "+ef");
      kept.load([&](StateIo& io) { resumed.state(io); });
      resumed.params.bump_versions();
      again.save([&](StateIo& io) { resumed.state(io); });
      EXPECT_TRUE(kept == again);
      for (int64_t s = 3; s < 6; ++s) resumed.step(s);
      EXPECT_EQ(resumed.weights(), trainer.weights());
    });
  });
}

TEST_P(CompressedByOrder, ASkippedStepLeavesNoTrace) {
  on_ranks(3, [&] {
    run_ranks(ranks(), [&](Communicator& comm) {
      Trainer trainer(comm, strategy(), code() + "+ef");
      trainer.step(0);
      MemoryState before, after;
      before.save([&](StateIo& io) { trainer.state(io); });
      EXPECT_FALSE(trainer.step(1, 1, comm.rank() == 0 ? kInf : 1).apply);
      after.save([&](StateIo& io) { trainer.state(io); });
      EXPECT_TRUE(before == after);
    });
  });
}

// Residuals lie in flat coordinates: who resumes with other buckets loses nothing.
TEST_P(CompressedByOrder, ResidualsSurviveOtherBuckets) {
  on_ranks(3, [&] {
    std::vector<double> missing;
    double largest = 0;
    std::mutex mutex;
    run_ranks(ranks(), [&](Communicator& comm) {
      const double weight = kSamples * ranks();
      Trainer first(comm, strategy(), code() + "+ef", {}, 1500);
      const Floats before = first.weights();
      for (int64_t s = 0; s < 3; ++s) first.step(s);
      MemoryState kept;
      kept.save([&](StateIo& io) { first.state(io); });
      Trainer second(comm, strategy(), code() + "+ef", {}, 3000);
      kept.load([&](StateIo& io) { second.state(io); });
      second.params.bump_versions();
      for (int64_t s = 3; s < 6; ++s) second.step(s);
      Waiting waiting(second.params.all().numel(), weight, comm.rank() == 0);
      second.strategy->state(waiting);
      const Floats after = second.weights();
      const std::lock_guard lock(mutex);
      missing.resize(before.size());
      for (size_t i = 0; i < before.size(); ++i) {
        missing[i] += first.sent[i] + second.sent[i] - waiting.sum[i];
        largest = std::max(largest, std::abs(first.sent[i]));
        if (comm.rank() == 0) missing[i] -= (double{before[i]} - double{after[i]}) / kRate * weight;
      }
    });
    double worst = 0;
    for (const double x : missing) worst = std::max(worst, std::abs(x));
    EXPECT_LT(worst, 8 * ranks() * 0x1p-17 * largest);
  });
}

// +ef:rescale: Σ lr · applied + Σ residual = Σ lr · raw, while the rate changes.
TEST(Compression, RescaledResidualsMoveTheParametersAsFarAsTheyWouldHave) {
  const int ranks = 3;
  std::vector<double> missing;
  double largest = 0;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    Trainer trainer(comm, "allreduce", "int8:block=512+ef:rescale");
    const double weight = kSamples * ranks;
    const Floats before = trainer.weights();
    std::vector<double> moved(before.size()), sent(before.size());
    for (int64_t s = 0; s < 5; ++s) {
      const double rate = kRate / static_cast<double>(1 << s);
      trainer.optimizer->set_lr(rate);
      trainer.step(s);
      for (size_t i = 0; i < moved.size(); ++i) {
        moved[i] += rate * (trainer.sent[i] - sent[i]);
        sent[i] = trainer.sent[i];
      }
    }
    Waiting waiting(trainer.params.all().numel(), weight, comm.rank() == 0);
    trainer.strategy->state(waiting);
    const Floats after = trainer.weights();
    const std::lock_guard lock(mutex);
    missing.resize(before.size());
    for (size_t i = 0; i < before.size(); ++i) {
      missing[i] += moved[i] - waiting.sum[i];
      largest = std::max(largest, std::abs(moved[i]));
      if (comm.rank() == 0) missing[i] -= (double{before[i]} - double{after[i]}) * weight;
    }
  });
  double worst = 0;
  for (const double x : missing) worst = std::max(worst, std::abs(x));
  EXPECT_LT(worst, 1e-4 * largest);
}

TEST(Compression, ScalesThatWereNotToldAreRefusedWhereResidualsAreKept) {
  run_ranks(1, [&](Communicator& comm) {
    Trainer trainer(comm, "allreduce", "int8+ef");
    {
      const auto micro = trainer.reducer.micro({.weight = kSamples});  // without its scale
      backward(trainer.scaler.scale(trainer.net.loss_sum(0)));
    }
    EXPECT_THROW(trainer.reducer.finish_backward(trainer.scaler), UsageError);
  });
}

TEST(Compression, StrategiesThatSendNoGradientsRefuseIt) {
  for (const char* spec : {"gossip", "local_sgd", "diloco"})
    run_ranks(2, [&](Communicator& comm) {
      EXPECT_THROW(Trainer(comm, spec, "int8"), UsageError) << spec;
    });
}

}  // namespace
}  // namespace lockstep::distributed
