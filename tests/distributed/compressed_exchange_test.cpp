// What every registered code promises when an exchange sums with it. A new one is tested by
// existing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <limits>
#include <mutex>

#include "core/kernels/elementwise.h"
#include "core/memory_state.h"
#include "core/random.h"
#include "codes.h"
#include "distributed/comm/launch.h"
#include "distributed/exchange.h"
#include "precision.h"

namespace lockstep::distributed {
namespace {

// A flat gradient of three parameters.
struct Gradient {
  explicit Gradient(DType dtype = DType::f32)
      : slices{{.name = "a", .shape = {700}, .begin = 0, .end = 700},
               {.name = "b", .shape = {1}, .begin = 700, .end = 701},
               {.name = "c", .shape = {1299}, .begin = 701, .end = 2000}},
        view{.param = zeros({2000}), .grad = zeros({2000}, dtype), .slices = slices} {}
  // Normal numbers times `scale`, by rank and step.
  Floats fill(int rank, int64_t step, float scale = 1) {
    const Random random(7, RandomStream::tests, static_cast<uint32_t>(100 * step + rank));
    Floats raw(2000);
    for (size_t i = 0; i < raw.size(); ++i) raw[i] = scale * static_cast<float>(random.normal(i));
    const Tensor rounded = in_dtype(from_values(raw), view.grad.dtype());
    kernel::copy(view.grad, rounded);
    return floats(rounded);
  }
  std::vector<optim::ParamSlice> slices;
  optim::FlatView view;
};

using Setting = std::tuple<std::string, int>;
class CompressedExchange : public testing::TestWithParam<Setting> {
 protected:
  std::string spec() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Contract, CompressedExchange,
                         testing::Combine(testing::ValuesIn(all_codes()),
                                          testing::Values(1, 2, 3, 4)),
                         [](const auto& setting) {
                           return fmt::format("{}_{}", test_name(std::get<0>(setting.param)),
                                              std::get<1>(setting.param));
                         });

void sum_all(Exchange& exchange, Gradient& gradient, const std::vector<int64_t>& borders) {
  std::vector<WorkPtr> works;
  int64_t begin = 0;
  for (const int64_t end : borders) {
    works.push_back(exchange.sum(gradient.view.range(begin, end), {"bucket", end}));
    begin = end;
  }
  for (const WorkPtr& work : works) work->wait();
}

// Sums what is kept, over ranks.
class Kept final : public StateIo {
 public:
  std::vector<double> sum = std::vector<double>(2000);
  double largest = 0;

  void flat(const std::string& name, Tensor& value, Fold) override {
    if (name.find("residual") == std::string::npos) return;
    const Floats v = floats(value);
    for (size_t i = 0; i < v.size(); ++i) {
      sum[i] += double{v[i]};
      largest = std::max(largest, std::abs(double{v[i]}));
    }
  }
  void value(const std::string&, int64_t&, Fold) override {}
  void value(const std::string&, double&, Fold) override {}
};

constexpr Way kWays[] = {Way::automatic, Way::gathered, Way::owned};

// Σ applied + Σ residual = Σ raw, over ranks and steps, whatever is lost on the way.
TEST_P(CompressedExchange, WithFeedbackNothingIsLostForGood) {
  for (const Way way : kWays)
    for (const float scale : {1.0f, 1024.0f}) {
      std::vector<double> raw(2000), applied(2000);
      Kept kept;
      std::mutex mutex;
      run_ranks(ranks(), [&](Communicator& comm) {
        Gradient gradient;
        Exchange exchange(comm, {.compress = spec() + "+ef", .way = way}, gradient.view);
        for (int64_t step = 0; step < 5; ++step) {
          const Floats mine = gradient.fill(comm.rank(), step, scale);
          exchange.window({.scale = scale, .weight = 1});
          sum_all(exchange, gradient, {700, 701, 2000});
          EXPECT_FALSE(exchange.take_overflow());
          const bool skipped = step == 2;  // as if its verdict had been so
          exchange.resolve(!skipped);
          if (skipped) continue;
          const Floats sum = floats(gradient.view.grad);
          const std::lock_guard lock(mutex);
          for (size_t i = 0; i < raw.size(); ++i) raw[i] += double{mine[i]} / scale;
          for (size_t i = 0; comm.rank() == 0 && i < raw.size(); ++i)
            applied[i] += double{sum[i]} / scale;
        }
        const std::lock_guard lock(mutex);
        exchange.state(kept);
      });
      double worst = 0;
      for (size_t i = 0; i < raw.size(); ++i)
        worst = std::max(worst, std::abs(raw[i] - applied[i] - kept.sum[i]));
      // What the last bits of residuals are worth.
      EXPECT_LT(worst, 2e-6 * std::max(10.0, kept.largest))
          << static_cast<int>(way) << " " << scale;
    }
}

// +ef:rescale: Σ lr · applied + Σ residual = Σ lr · raw. What is sent in a step of rate 0 moves
// nothing, so nothing that waits may be spent on it.
TEST_P(CompressedExchange, RescaledResidualsMoveAsFarAsTheyWouldHave) {
  for (const Way way : kWays) {
    std::vector<double> missing(2000);
    double largest = 10;
    Kept kept;
    std::mutex mutex;
    run_ranks(ranks(), [&](Communicator& comm) {
      Gradient gradient;
      Exchange exchange(comm, {.compress = spec() + "+ef:rescale", .way = way}, gradient.view);
      const double rates[] = {0, 0.5, 0.3, 0, 0.01, 0.125};
      for (int64_t step = 0; step < 6; ++step) {
        const Floats mine = gradient.fill(comm.rank(), step, 256);
        exchange.window({.scale = 256, .weight = 1, .lr = rates[step]});
        sum_all(exchange, gradient, {700, 701, 2000});
        exchange.resolve(true);
        const Floats sum = floats(gradient.view.grad);
        const std::lock_guard lock(mutex);
        for (size_t i = 0; i < missing.size(); ++i) {
          missing[i] += rates[step] * double{mine[i]} / 256;
          if (comm.rank() == 0) missing[i] -= rates[step] * double{sum[i]} / 256;
          largest = std::max(largest, rates[step] * std::abs(double{sum[i]}) / 256);
        }
      }
      const std::lock_guard lock(mutex);
      exchange.state(kept);
    });
    double worst = 0;
    for (size_t i = 0; i < missing.size(); ++i)
      worst = std::max(worst, std::abs(missing[i] - kept.sum[i]));
    EXPECT_LT(worst, 4e-6 * std::max(largest, kept.largest)) << static_cast<int>(way);
  }
}

// What a window leaves out keeps what it has, whatever a skipped one had written there.
TEST_P(CompressedExchange, WhatIsNotSummedKeepsItsResidual) {
  run_ranks(ranks(), [&](Communicator& comm) {
    Gradient gradient;
    Exchange exchange(comm, {.compress = spec() + "+ef"}, gradient.view);
    const auto window = [&](int64_t step, const std::vector<int64_t>& borders, bool applied) {
      gradient.fill(comm.rank(), step);
      exchange.window({.scale = 1, .weight = 1});
      sum_all(exchange, gradient, borders);
      exchange.resolve(applied);
    };
    window(0, {1000, 2000}, false);
    window(1, {1000}, true);
    Kept kept;
    exchange.state(kept);
    for (size_t i = 1000; i < 2000; ++i) ASSERT_EQ(kept.sum[i], 0) << i;
  });
}

// Σ applied + Σ knowingly dropped = Σ raw, where what a rank drops is what observers do not see of
// it on the wire: what they see of all ranks is what is applied.
TEST_P(CompressedExchange, WhatObserversSeeOnTheWireIsWhatIsAdded) {
  struct Watcher final : GradientObserver {
    Floats wire = Floats(2000), reduced = Floats(2000);
    void see(GradientStage stage, const optim::FlatView& range, const Tensor& values) override {
      Floats& seen = stage == GradientStage::wire ? wire : reduced;
      const Floats v = floats(values);
      ASSERT_EQ(static_cast<int64_t>(v.size()), range.grad.numel());
      std::ranges::copy(v, seen.begin() + range.offset);
    }
  };
  const auto code = make_compressor(Spec(spec()));
  for (const Way way : kWays) {
    const bool added = way == Way::automatic && code->adds_as();
    // Owners encode again what they have added up.
    if (!code->exact_sums() && !added && (way != Way::gathered || code->needs_owners())) continue;
    std::vector<Floats> wires(static_cast<size_t>(ranks()));
    Floats applied;
    run_ranks(ranks(), [&](Communicator& comm) {
      Gradient gradient;
      Watcher watcher;
      Exchange exchange(comm, {.compress = spec(), .way = way}, gradient.view);
      exchange.observe(&watcher);
      gradient.fill(comm.rank(), 0);
      exchange.window({.scale = 1, .weight = 1});
      sum_all(exchange, gradient, {700, 2000});
      wires[static_cast<size_t>(comm.rank())] = watcher.wire;
      EXPECT_EQ(watcher.reduced, floats(gradient.view.grad));
      if (comm.rank() == 0) applied = watcher.reduced;
    });
    Floats sum(2000);  // in the order of ranks
    for (const Floats& wire : wires)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += wire[i];
    const double digits = added && size_of(*code->adds_as()) == 2 ? 0x1p-8 : 0;  // of a sum of bf16
    for (size_t i = 0; i < sum.size(); ++i)
      ASSERT_NEAR(applied[i], sum[i], std::abs(sum[i]) * digits)
          << static_cast<int>(way) << ", element " << i;
  }
}

}  // namespace
}  // namespace lockstep::distributed
