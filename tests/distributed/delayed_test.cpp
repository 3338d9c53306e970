// What is special about gradients that are applied d steps late.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "core/memory_state.h"
#include "distributed/comm/launch.h"
#include "rank.h"
#include "tests/support/sanitizer.h"

namespace lockstep::distributed {
namespace {

using optim::GradScaler;

// A window of one micro-batch with this gradient, a sum over `weight` samples; the step it makes.
StepVerdict window(Rank<>& rank, float gradient, double weight = 1,
                   const GradScaler& scaler = GradScaler()) {
  rank.micro(rank.model.loss(gradient), Sync::now, weight, scaler);
  const StepVerdict verdict = rank.finish(scaler);
  rank.step(verdict);
  return verdict;
}

TEST(Delayed, AppliesTheAverageOfDStepsAgo) {
  for (int d : {0, 1, 2, 3})
    run_ranks(2, [&](Communicator& comm) {
      Rank rank(fmt::format("delayed:{}", d), comm, {}, kPlainSgd);
      float w = 0;
      for (int t = 0; t < 8; ++t) {
        const auto gradient = static_cast<float>(t + 1);  // the average is 2·(t + 1)
        const StepVerdict verdict = window(rank, comm.rank() == 0 ? gradient : 3 * gradient);
        if (t >= d) w -= 2 * static_cast<float>(t + 1 - d);
        EXPECT_EQ(rank.model.value(), w) << "d " << d << ", step " << t;
        EXPECT_EQ(verdict.apply, t >= d);
        EXPECT_TRUE(verdict.finite);
        EXPECT_EQ(rank.strategy->waiting(), std::min(t + 1, d));
      }
    });
}

TEST(Delayed, WeightScaleAndClippingAreThoseOfTheGradientThatIsApplied) {
  run_ranks(2, [](Communicator& comm) {
    Rank rank("delayed:steps=2", comm, {}, kPlainSgd);
    // Window t: mean gradient 4·(t+1), of weight t+1 on each rank, scaled by 2^t.
    for (int t = 0; t < 5; ++t) {
      const GradScaler scaler(std::ldexp(1.0, t));
      const double weight = t + 1;
      rank.micro(rank.model.loss(static_cast<float>(4 * (t + 1) * weight)), Sync::now, weight,
                 scaler);
      StepVerdict verdict = rank.finish(scaler);
      const double norm = rank.reducer.grad_norm(verdict);
      EXPECT_FLOAT_EQ(static_cast<float>(norm), t < 2 ? 0 : 4 * (t - 1));
      EXPECT_EQ(verdict.weight, t < 2 ? 0 : 2 * (t - 1));
      EXPECT_EQ(verdict.active_ranks, 2);
      verdict.clip(norm, 8);
      rank.step(verdict);
    }
    EXPECT_FLOAT_EQ(rank.model.value(), -4 - 8 - 8);
  });
}

TEST(Delayed, OnlyParametersThatTheAppliedWindowUsedAreStepped) {
  run_ranks(2, [](Communicator& comm) {
    const std::vector<Linears::Spec> specs = {{"a", 1, 1}, {"b", 1, 1}};
    Rank rank("delayed:1", comm, {}, {.lr = 1, .weight_decay = 0.5}, specs);
    const std::vector<std::vector<std::pair<int, float>>> windows = {{{0, 1.0f}}, {{1, 1.0f}}};
    std::vector<std::pair<float, float>> seen;
    for (int t = 0; t < 3; ++t) {
      rank.micro(rank.model.loss(windows[static_cast<size_t>(t % 2)]), Sync::now, 1);
      rank.step(rank.finish());
      seen.emplace_back(rank.model.value(0), rank.model.value(1));
    }
    const std::vector<std::pair<float, float>> expected = {
        {1.0f, 1.0f}, {-0.5f, 1.0f}, {-0.5f, -0.5f}};
    EXPECT_EQ(seen, expected);
  });
}

TEST(Delayed, AWindowThatIsSkippedOnOneRankLeavesTheQueueAsItWas) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  run_ranks(3, [&](Communicator& comm) {
    Rank rank("delayed:2", comm, {}, kPlainSgd);
    const std::vector<float> gradients = {1, 2, kInf, 4, kInf, 8, 16};
    const std::vector<float> expected = {0, 0, 0, -1, -1, -3, -7};
    for (size_t t = 0; t < gradients.size(); ++t) {
      const bool skips = gradients[t] == kInf;
      const StepVerdict verdict = window(rank, skips && comm.rank() != 1 ? 5 : gradients[t]);
      EXPECT_EQ(verdict.finite, !skips);
      EXPECT_EQ(rank.model.value(), expected[t]) << t;
    }
    EXPECT_EQ(rank.strategy->waiting(), 2);
  });
}

TEST(Delayed, ASumThatOverflowsOnTheWireIsDroppedWhenItArrives) {
  run_ranks(2, [](Communicator& comm) {
    const ReducerOptions options{.exchange = {.wire = DType::f16, .divide = Divide::none}};
    Rank rank("delayed:1", comm, options, kPlainSgd);
    const std::vector<float> gradients = {1, 40'000, 2, 3};  // 80000 is beyond f16
    const std::vector<float> expected = {0, -1, -1, -3};
    for (size_t t = 0; t < gradients.size(); ++t) {
      const StepVerdict verdict = window(rank, gradients[t]);
      EXPECT_EQ(verdict.finite, t != 2);
      EXPECT_EQ(rank.model.value(), expected[t]) << t;
    }
  });
}

TEST(Delayed, RanksWithoutDataTakePartAndAnEmptyWindowEndsTraining) {
  run_ranks(3, [](Communicator& comm) {
    Rank rank("delayed:1", comm, {}, kPlainSgd);
    // Rank r has r windows of gradient 6; the mean over ranks with data is 6.
    int t = 0;
    for (;; ++t) {
      if (t < comm.rank()) rank.micro(rank.model.loss(6), Sync::now, 1);
      const StepVerdict verdict = rank.finish();
      if (rank.reducer.exhausted(verdict)) break;
      rank.step(verdict);
    }
    EXPECT_EQ(t, 2);
    EXPECT_EQ(rank.model.value(), -6);
    EXPECT_EQ(rank.strategy->waiting(), 1);  // the last one: never applied
  });
}

TEST(Delayed, GradientsWaitThroughASaveAndALoad) {
  run_ranks(2, [](Communicator& comm) {
    Rank rank("delayed:3", comm, {}, kPlainSgd);
    for (int t = 0; t < 4; ++t) window(rank, static_cast<float>(1 << t));
    MemoryState kept;
    kept.save([&](StateIo& io) { rank.strategy->state(io); });
    Rank resumed("delayed:3", comm, {}, kPlainSgd);
    kept.load([&](StateIo& io) { resumed.strategy->state(io); });
    EXPECT_EQ(resumed.strategy->waiting(), 3);
    for (Rank<>* each : {&rank, &resumed})
      for (int t = 0; t < 3; ++t) window(*each, 0);
    EXPECT_EQ(rank.model.value(), -15);
    EXPECT_EQ(resumed.model.value(), -14);
  });
}

// On ½λx² the recurrence x(t+1) = x(t) - ηλ·x(t-d) is stable exactly if ηλ < 2·sin(π/(2·(2d+1)))
// (Levin & May 1976): 2 without delay, 1 for d = 1, then 0.618, 0.445, 0.347 …
TEST(Delayed, TheLargestStableLearningRateFallsAsTheorySays) {
  constexpr double kCurvature = 4;
  const auto delays = test::kThreadSanitizer ? std::vector{0, 3} : std::vector{0, 1, 2, 3, 5, 8};
  for (int d : delays) {
    const double limit = 2 * std::sin(std::numbers::pi / (2 * (2 * d + 1))) / kCurvature;
    for (double share : {0.98, 1.02}) {
      run_ranks(2, [&](Communicator& comm) {
        const std::vector<Linears::Spec> one = {{"x", 1, 1}};
        Rank rank(fmt::format("delayed:{}", d), comm, {}, {.lr = share * limit}, one);
        double largest = 0;  // of the last tenth
        constexpr int kSteps = 3000;
        for (int t = 0; t < kSteps && largest < 1e6; ++t) {
          // Ranks disagree about the gradient; their mean is λx.
          const float bias = comm.rank() == 0 ? 0.5f : -0.5f;
          window(rank, static_cast<float>(kCurvature) * rank.model.value() + bias);
          const double x = std::abs(rank.model.value());
          if (t > kSteps - kSteps / 10 || x > 1e6) largest = std::max(largest, x);
        }
        if (share < 1)
          EXPECT_LT(largest, 0.05) << "d " << d;
        else
          EXPECT_GT(largest, 10) << "d " << d;
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::distributed
