#include "optim/grad_scaler.h"

#include "optim/flat_params.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/ops.h"
#include "core/kernels/reduce.h"
#include "core/memory_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::optim {
namespace {

constexpr StepVerdict kApplied{};
constexpr StepVerdict kOverflowed{.apply = false, .finite = false};
constexpr StepVerdict kNobodyHadData{.apply = false};
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(GradScaler, DividesByThePowerOfTwoAboveTheNominalWeight) {
  EXPECT_EQ(GradScaler().scale(), 1);
  EXPECT_EQ(GradScaler(1, 768).scale(), 1.0 / 1024);
  EXPECT_EQ(GradScaler(1, 1024).scale(), 1.0 / 1024);
  EXPECT_EQ(GradScaler(65536, 1025).scale(), 32);
  EXPECT_EQ(GradScaler(65536, 1025).loss_scale(), 65536);
  EXPECT_EQ(GradScaler(1, 0.3).scale(), 2);
  EXPECT_EQ(GradScaler(1, 768).nominal_weight(), 768);
}

// Every gradient is exactly scale times what it would be, bit for bit.
TEST(GradScaler, ScalesGradientsExactly) {
  const auto gradient = [](const GradScaler& scaler) {
    const Tensor w = from_values<float>({0.1f, -0.7f, 3.3f}, {1, 3});
    autograd::require_grad(w);
    const Tensor x = from_values<float>({1.1f, 2.3f, -0.9f}, {1, 3});
    autograd::backward(scaler.scale(ops::sum(ops::gelu(ops::multiply(w, x)))));
    return values(autograd::grad(w));
  };
  const std::vector<float> plain = gradient(GradScaler());
  for (const auto& [scale, weight] : {std::pair{1024.0, 1.0}, {1.0, 5000.0}}) {
    const GradScaler scaler(scale, weight);
    const std::vector<float> scaled = gradient(scaler);
    for (size_t i = 0; i < plain.size(); ++i)
      EXPECT_EQ(scaled[i], plain[i] * static_cast<float>(scaler.scale()));
  }
}

TEST(GradScaler, RefusesScalesThatWouldRound) {
  EXPECT_THROW(GradScaler(1000), UsageError);
  EXPECT_THROW(GradScaler(0), UsageError);
  EXPECT_THROW(GradScaler(-2), UsageError);
  EXPECT_THROW(GradScaler(std::nan("")), UsageError);
  EXPECT_THROW(GradScaler(1, 0), UsageError);
  EXPECT_THROW(GradScaler(1, INFINITY), UsageError);
  EXPECT_THROW(GradScaler(std::ldexp(1.0, 200)), UsageError);
}

TEST(GradScaler, GrowsAfterAnIntervalOfAppliedStepsInARow) {
  GradScaler scaler({.scale = 1024, .interval = 3});
  const auto after = [&](const StepVerdict& verdict) {
    scaler.update(verdict);
    return scaler.loss_scale();
  };
  EXPECT_EQ(after(kApplied), 1024);
  EXPECT_EQ(after(kApplied), 1024);
  EXPECT_EQ(after(kNobodyHadData), 1024) << "neither applied nor skipped";
  EXPECT_EQ(after(kApplied), 2048);
  EXPECT_EQ(after(kApplied), 2048);
  EXPECT_EQ(after(kApplied), 2048);
  EXPECT_EQ(after(kOverflowed), 1024) << "at once, and the count begins again";
  EXPECT_EQ(after(kApplied), 1024);
  EXPECT_EQ(after(kApplied), 1024);
  EXPECT_EQ(after(kApplied), 2048);
}

TEST(GradScaler, AFixedScaleCountsSkipsButStays) {
  GradScaler scaler(1024);
  for (int i = 0; i < 3; ++i) scaler.update(kOverflowed);
  EXPECT_EQ(scaler.loss_scale(), 1024);
  EXPECT_EQ(scaler.skips(), 3);
  for (int i = 0; i < 5000; ++i) scaler.update(kApplied);
  EXPECT_EQ(scaler.loss_scale(), 1024);
  EXPECT_EQ(scaler.skips(), 0);
}

TEST(GradScaler, FailsAfterSoManySkipsInARow) {
  GradScaler scaler({.max_skips = 3});
  scaler.update(kOverflowed);
  scaler.update(kOverflowed);
  scaler.update(kApplied);
  scaler.update(kOverflowed);
  scaler.update(kOverflowed);
  EXPECT_FALSE(scaler.failed());
  scaler.update(kNobodyHadData);
  EXPECT_EQ(scaler.skips(), 2);
  scaler.update(kOverflowed);
  EXPECT_TRUE(scaler.failed());
}

TEST(GradScaler, ANonFiniteNormCountsAsASkip) {
  GradScaler scaler({.scale = 1024});
  StepVerdict verdict;
  verdict.clip(std::nan(""), 1);
  scaler.update(verdict);
  EXPECT_EQ(scaler.skips(), 1);
  EXPECT_EQ(scaler.loss_scale(), 512);
}

TEST(GradScaler, StopAndResumeIsTheUninterruptedRun) {
  const GradScalerOptions options{.scale = 1024, .interval = 4, .nominal_weight = 768};
  GradScaler one(options), two(options);
  const StepVerdict steps[] = {kApplied, kApplied,    kApplied, kApplied, kOverflowed, kOverflowed,
                               kApplied, kOverflowed, kApplied, kApplied, kApplied,    kApplied};
  for (size_t i = 0; i < std::size(steps); ++i) {
    MemoryState state;
    state.save([&](StateIo& io) { two.state(io); });
    two = GradScaler(options);
    state.load([&](StateIo& io) { two.state(io); });
    one.update(steps[i]);
    two.update(steps[i]);
    ASSERT_EQ(two.loss_scale(), one.loss_scale()) << i;
    ASSERT_EQ(two.scale(), one.scale()) << i;
    ASSERT_EQ(two.skips(), one.skips()) << i;
  }
}

TEST(GradScaler, RefusesRulesThatWouldRoundOrNeverEnd) {
  const auto refused = [](const GradScalerOptions& options) {
    EXPECT_THROW(GradScaler{options}, UsageError);
  };
  refused({.scale = 1e30});
  refused({.growth = 1e10});
  refused({.growth = 1});
  refused({.growth = 0.5});
  refused({.backoff = 1});
  refused({.backoff = 0.3});
  refused({.interval = 0});
  refused({.scale = 0x1p25});
  refused({.scale = 0x1p-17});
  refused({.min = 0});
  refused({.min = 3});
  refused({.max = 0x1p140});
  refused({.max_skips = 0});
  refused({.nominal_weight = 0});
}

// ---------------------------------------------------------------- known faults

struct Weight : layers::Module {
  Weight() { add_parameter("w", w, Decay::no); }
  Tensor w = zeros({1});
};

// One step whose gradient of w, before scaling, is the sum of `gradients`: a micro-batch each.
StepVerdict train_step(const Weight& model, const FlatParams& params, Optimizer& optimizer,
                       GradScaler& scaler, const std::vector<float>& gradients) {
  autograd::leaf_of(model.w).landing = autograd::Landing::overwrite;
  for (float gradient : gradients)
    autograd::backward(scaler.scale(ops::sum(ops::scale(model.w, gradient))));
  StepVerdict verdict{.factor = static_cast<float>(1 / scaler.scale())};
  verdict.finite = verdict.apply = kernel::first_non_finite(params.all().grad) < 0;
  optimizer.step(verdict);
  scaler.update(verdict);
  return verdict;
}

TEST(KnownFaults, O09_TheScaleStaysFinite) {
  Weight model;
  const FlatParams params(model);
  const auto sgd = make_optimizer("sgd", params.all(), {.lr = 1});
  GradScaler scaler({.scale = 0x1p16, .growth = 2, .interval = 1});
  for (int i = 0; i < 200; ++i) {
    const float before = values(model.w)[0];
    EXPECT_TRUE(train_step(model, params, *sgd, scaler, {-0x1p-20f}).apply);
    ASSERT_EQ(values(model.w)[0], before + 0x1p-20f) << "unscaled exactly in step " << i;
    ASSERT_LE(scaler.loss_scale(), 0x1p24);
  }
  EXPECT_EQ(scaler.loss_scale(), 0x1p24) << "the documented maximum; 2^128 is none";

  GradScaler huge({.scale = 0x1p100, .growth = 0x1p33, .interval = 1, .max = 0x1p100});
  for (int i = 0; i < 200; ++i) huge.update(kApplied);
  EXPECT_EQ(huge.loss_scale(), 0x1p100);
  GradScaler fast({.growth = 0x1p33, .interval = 1});
  for (int i = 0; i < 200; ++i) fast.update(kApplied);
  EXPECT_EQ(fast.loss_scale(), 0x1p24);
}

TEST(KnownFaults, O09_TheScaleStaysAboveZero) {
  Weight model;
  const FlatParams params(model);
  const auto sgd = make_optimizer("sgd", params.all(), {.lr = 1});
  GradScaler scaler({.scale = 0x1p16});
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(train_step(model, params, *sgd, scaler, {kInf}).apply);
    EXPECT_EQ(scaler.failed(), i + 1 >= 50) << "the documented number of skips, step " << i;
    ASSERT_GE(scaler.loss_scale(), 0x1p-16);
  }
  EXPECT_EQ(scaler.loss_scale(), 0x1p-16) << "the documented minimum";
  EXPECT_EQ(values(model.w)[0], 0.0f);
  EXPECT_TRUE(train_step(model, params, *sgd, scaler, {-0.75f}).apply);
  EXPECT_EQ(values(model.w)[0], 0.75f);
  EXPECT_FALSE(scaler.failed());
}

// CONTRACT: the schedule goes by applied steps.
TEST(KnownFaults, O10_AWindowIsScaledAlikeAndSkippedAsAWhole) {
  Weight model;
  const FlatParams params(model);
  const auto sgd = make_optimizer("sgd", params.all(), {});
  const Schedule schedule{.shape = Schedule::Shape::linear, .base = 1, .total = 10};
  GradScaler scaler({.scale = 1024});
  const std::vector<std::vector<float>> windows{{1, 1}, {kInf, 1}, {1, 2}, {3, 1}};
  int64_t applied = 0;
  std::vector<double> rates, scales;
  for (const auto& window : windows) {
    const float before = values(model.w)[0];
    sgd->set_lr(schedule.at(applied));
    scales.push_back(scaler.loss_scale());
    if (train_step(model, params, *sgd, scaler, window).apply) {
      rates.push_back(sgd->lr());
      ++applied;
      EXPECT_FLOAT_EQ(values(model.w)[0],
                      before - static_cast<float>(sgd->lr()) * (window[0] + window[1]))
          << "unscaled once, as large as without a scale";
    } else {
      EXPECT_EQ(values(model.w)[0], before);
      EXPECT_EQ(scaler.skips(), 1) << "two micro-batches, one skip";
    }
  }
  EXPECT_EQ(rates, (std::vector<double>{1.0, 0.9, 0.8}));
  EXPECT_EQ(scales, (std::vector<double>{1024, 1024, 512, 512}));
}

}  // namespace
}  // namespace lockstep::optim
