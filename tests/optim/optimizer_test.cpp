#include "optim/optimizer.h"

#include "optim/schedule.h"

#include "optim/flat_params.h"

#include "core/allocator.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"
#include "core/memory_state.h"
#include "core/random.h"

#include "tests/optim/recipes.h"
#include "tests/support/precision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::optim {
namespace {

using test::floats;
using test::in_dtype;
using test::kNarrow;

// ---------------------------------------------------------------- against naive twins

struct Naive {
  OptimizerOptions o;
  bool adam, decoupled;
  double w, m = 0, v = 0;
  int64_t t = 0;

  void step(double g, bool decay) {
    const double wd = decay ? o.weight_decay : 0;
    ++t;
    if (!adam) {
      g += wd * w;
      m = t == 1 ? g : o.momentum * m + (1 - o.dampening) * g;
      w -= o.lr * (o.momentum == 0 ? g : o.nesterov ? g + o.momentum * m : m);
      return;
    }
    if (decoupled)
      w *= 1 - o.lr * wd;
    else
      g += wd * w;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, t)), v_hat = v / (1 - std::pow(o.beta2, t));
    w -= o.lr * m_hat / (std::sqrt(v_hat) + o.eps);
  }
};

INSTANTIATE_TEST_SUITE_P(All, Recipes, ::testing::ValuesIn(kRecipes),
                         [](const auto& recipe) { return recipe.param.name; });

// Twelve steps over parameters of odd sizes, some of which decay and one of which is unused in
// some steps.
TEST_P(Recipes, AgreesWithItsNaiveTwin) {
  const Recipe& recipe = GetParam();
  const Buffer buffer({1, 37, 5, 300, 16}, {true, false, true, true, false});
  const int64_t n = buffer.param.numel();
  const std::vector<float> start = random_values(n, 0);
  buffer.set(buffer.param, start);
  std::vector<Naive> twins;
  for (float w : start)
    twins.push_back({recipe.options, recipe.spec != "sgd", recipe.spec == "adamw", w});
  const auto optimizer = make_optimizer(recipe.spec, buffer.view(), recipe.options);
  for (uint32_t s = 1; s <= 12; ++s) {
    const std::vector<float> gradient = random_values(n, s);
    const std::vector<uint8_t> used{1, 1, s % 3 != 0, 1, 1};
    step(*optimizer, buffer, gradient, {.factor = 0.25f, .used = used});
    for (size_t slice = 0; slice < buffer.slices.size(); ++slice)
      for (int64_t i = buffer.slices[slice].begin; i < buffer.slices[slice].end; ++i)
        if (used[slice]) twins[i].step(0.25 * gradient[i], buffer.slices[slice].decay);
  }
  const std::vector<float> stepped = values(buffer.param);
  for (int64_t i = 0; i < n; ++i)
    ASSERT_NEAR(stepped[i], twins[i].w, 2e-6 * (1 + std::abs(twins[i].w))) << "element " << i;
}

TEST_P(Recipes, StopAndResumeIsTheUninterruptedRun) {
  const Recipe& recipe = GetParam();
  const Buffer whole({3, 40}, {true, false}), parts({3, 40}, {true, false});
  const auto one = make_optimizer(recipe.spec, whole.view(), recipe.options);
  auto two = make_optimizer(recipe.spec, parts.view(), recipe.options);
  for (uint32_t s = 0; s < 6; ++s) {
    const std::vector<uint8_t> used{1, s != 1};
    one->set_lr(0.1 / (s + 1));
    two->set_lr(0.1 / (s + 1));
    if (s == 3) {
      const MemoryState state = state_of(*two);
      OptimizerOptions options = recipe.options;
      options.lr = 77;  // comes with the state
      two = make_optimizer(recipe.spec, parts.view(), options);
      state.load([&](StateIo& io) { two->state(io); });
      EXPECT_TRUE(state_of(*two) == state);
    }
    step(*one, whole, random_values(43, s), {.used = used});
    step(*two, parts, random_values(43, s), {.used = used});
  }
  EXPECT_EQ(values(whole.param), values(parts.param));
  EXPECT_TRUE(state_of(*one) == state_of(*two));
}

// The same class serves a shard: ranges that cut parameters step as the whole does, bit for bit.
TEST_P(Recipes, ShardsStepAsTheWholeDoes) {
  const Recipe& recipe = GetParam();
  const Buffer whole({30, 7, 40}, {true, false, true}), parts({30, 7, 40}, {true, false, true});
  const auto one = make_optimizer(recipe.spec, whole.view(), recipe.options);
  std::vector<std::unique_ptr<Optimizer>> shards;
  for (const auto& [begin, end] : {std::pair{0, 20}, {20, 33}, {33, 77}})
    shards.push_back(make_optimizer(recipe.spec, parts.view().range(begin, end), recipe.options));
  for (uint32_t s = 0; s < 5; ++s) {
    const std::vector<uint8_t> used{1, s != 1, s != 3};
    step(*one, whole, random_values(77, s), {.used = used});
    parts.set(parts.grad, random_values(77, s));
    for (const auto& shard : shards) shard->step({.used = used});
  }
  EXPECT_EQ(values(whole.param), values(parts.param));
}

TEST_P(Recipes, ASkippedStepLeavesNoTrace) {
  const Recipe& recipe = GetParam();
  const Buffer buffer({5}, {true});
  const auto optimizer = make_optimizer(recipe.spec, buffer.view(), recipe.options);
  step(*optimizer, buffer, {1, 2, 3, 4, 5});
  const std::vector<float> before = values(buffer.param);
  const MemoryState state = state_of(*optimizer);
  const float inf = std::numeric_limits<float>::infinity();
  step(*optimizer, buffer, {inf, 2, NAN, 4, 5}, {.apply = false});
  EXPECT_EQ(values(buffer.param), before);
  EXPECT_TRUE(state_of(*optimizer) == state);
}

TEST_P(Recipes, AStepAsksForNoMemoryOnceWarm) {
  const Recipe& recipe = GetParam();
  const Buffer buffer({30, 7, 40}, {true, false, true});
  const auto optimizer = make_optimizer(recipe.spec, buffer.view(), recipe.options);
  for (int i = 0; i < 3; ++i) optimizer->step({});
  const int64_t before = host_allocator().stats().requests;
  for (int i = 0; i < 10; ++i) optimizer->step({});
  EXPECT_EQ(host_allocator().stats().requests, before);
}

// ---------------------------------------------------------------- known faults

TEST(KnownFaults, O02_ShortLastWindowAndTheSchedulesClock) {
  const std::vector<float> gradients{1, 2, 3, 4, 5};
  const auto epochs = [&](int k, int count) {
    const Buffer w({1});
    const auto sgd = make_optimizer("sgd", w.view(), {.lr = 0.1});
    const Schedule schedule{.shape = Schedule::Shape::linear, .base = 0.1, .total = 1'000'000'000};
    int64_t steps = 0;
    for (int epoch = 0; epoch < count; ++epoch)
      for (size_t begin = 0; begin < gradients.size(); begin += k) {
        const size_t end = std::min(begin + k, gradients.size());
        float sum = 0;
        for (size_t i = begin; i < end; ++i) sum += gradients[i];
        sgd->set_lr(schedule.at(steps++));  // once per optimiser step
        step(*sgd, w, {sum}, {.factor = 1.0f / static_cast<float>(end - begin)});
      }
    return std::pair{values(w.param)[0], steps};
  };
  EXPECT_NEAR(epochs(2, 1).first, -1.0, 1e-6);  // means 1.5, 3.5, 5
  EXPECT_EQ(epochs(2, 1).second, 3);
  EXPECT_NEAR(epochs(8, 1).first, -0.3, 1e-6);
  EXPECT_NEAR(epochs(2, 2).first, -2.0, 1e-6);  // nothing leaks into the second epoch
}

TEST(KnownFaults, O04_AnUnusedParameterIsNotStepped) {
  // a used everywhere, b on one of two ranks (gradient 4, so 2 on average), c nowhere.
  const Buffer buffer({1, 1, 1}, {true, true, true});
  buffer.set(buffer.param, {1, 1, 1});
  const auto sgd =
      make_optimizer("sgd", buffer.view(), {.lr = 1, .momentum = 0.9, .weight_decay = 0.1});
  const std::vector<uint8_t> used{1, 1, 0};
  step(*sgd, buffer, {2, 4, 0}, {.factor = 0.5f, .used = used});
  EXPECT_FLOAT_EQ(values(buffer.param)[0], 1 - 1.1f);
  EXPECT_FLOAT_EQ(values(buffer.param)[1], 1 - 2.1f);
  EXPECT_EQ(values(buffer.param)[2], 1.0f);  // 0.9 when stepped with a zero gradient
  // Its first real update starts the velocity.
  step(*sgd, buffer, {0, 0, 4}, {.factor = 0.5f});
  EXPECT_FLOAT_EQ(values(buffer.param)[2], 1 - 2.1f);
}

TEST(KnownFaults, O06b_TheStepUsesTheUnscaledGradient) {
  const Buffer w({2});
  const auto sgd = make_optimizer("sgd", w.view(), {.lr = 1});
  w.set(w.grad, {3 * 1024, 4 * 1024});
  StepVerdict verdict{.factor = 1.0f / 1024};
  verdict.clip(std::sqrt(kernel::sum_of_squares(w.grad)) * verdict.factor, 10);
  sgd->step(verdict);
  EXPECT_EQ(values(w.param), (std::vector<float>{-3, -4}));
  EXPECT_EQ(values(w.grad), (std::vector<float>{3072, 4096})) << "nothing is unscaled in place";
}

TEST(KnownFaults, O06c_OneNormOverAllParameters) {
  const Buffer w({1, 1});
  const auto sgd = make_optimizer("sgd", w.view(), {.lr = 1});
  w.set(w.grad, {3, 4});
  StepVerdict verdict;
  verdict.clip(std::sqrt(kernel::sum_of_squares(w.grad)), 1);
  sgd->step(verdict);
  EXPECT_FLOAT_EQ(values(w.param)[0], -0.6f);
  EXPECT_FLOAT_EQ(values(w.param)[1], -0.8f);
}

TEST(KnownFaults, O36a_LearningRateAndVelocityComeWithTheState) {
  const Buffer a({1}), b({1});
  const auto first = make_optimizer("sgd", a.view(), {.lr = 0.01, .momentum = 0.9});
  const auto second = make_optimizer("sgd", b.view(), {.lr = 0.1, .momentum = 0.9});
  step(*first, a, {5});  // velocity 5
  state_of(*first).load([&](StateIo& io) { second->state(io); });
  step(*second, b, {1});
  EXPECT_NEAR(values(b.param)[0], -0.055, 1e-8);  // -0.1 without
}

TEST(KnownFaults, O36b_AdamResumes) {
  const OptimizerOptions options{.lr = 0.1, .eps = 0, .weight_decay = 0};
  const Buffer w({1});
  auto adam = make_optimizer("adam", w.view(), options);
  step(*adam, w, {1});
  step(*adam, w, {1});
  const MemoryState state = state_of(*adam);
  adam = make_optimizer("adam", w.view(), options);
  state.load([&](StateIo& io) { adam->state(io); });
  const float before = values(w.param)[0];
  step(*adam, w, {3});
  // -0.1420312 with the step count reset, -0.0638814 without the moments, -0.1 with neither
  EXPECT_NEAR(values(w.param)[0] - before, -0.0907315, 1e-6);
}

TEST(KnownFaults, O36c_DecoupledDecayStaysOutOfTheMoments) {
  const OptimizerOptions options{.lr = 0.1, .weight_decay = 0.5};
  const Buffer w({1, 1}, {true, false});
  w.set(w.param, {2, 2});
  const auto adamw = make_optimizer("adamw", w.view(), options);
  step(*adamw, w, {0, 0});
  EXPECT_FLOAT_EQ(values(w.param)[0], 2 * (1 - 0.1f * 0.5f));
  EXPECT_EQ(values(w.param)[1], 2.0f) << "only parameters marked decay";
  const Buffer l2({1}, {true});
  l2.set(l2.param, {2});
  step(*make_optimizer("adam", l2.view(), options), l2, {0});
  EXPECT_NEAR(values(l2.param)[0], 1.9, 1e-6) << "Adam's goes through them: a step of lr";
}

// ---------------------------------------------------------------- runs, factors, errors

// Records how parameters are grouped.
class Recorder final : public Optimizer {
 public:
  using Optimizer::Optimizer;
  std::vector<std::array<int64_t, 3>> runs;  // begin, end, step

 private:
  void update(std::span<const Run> alike, float) override {
    for (const Run& run : alike) runs.push_back({run.begin, run.end, run.step});
  }
};
using Runs = std::vector<std::array<int64_t, 3>>;

TEST(Optimizer, StepsAdjacentParametersAlikeInOnePass) {
  const Buffer buffer({2, 3, 4, 5}, {false, false, true, true});
  Recorder one(buffer.view(), {.weight_decay = 0});
  one.step({});
  EXPECT_EQ(one.runs, (Runs{{0, 14, 1}}));
  Recorder two(buffer.view(), {.weight_decay = 0.1});
  two.step({});
  EXPECT_EQ(two.runs, (Runs{{0, 5, 1}, {5, 14, 1}}));
  const std::vector<uint8_t> used{1, 0, 1, 1};
  two.runs.clear();
  two.step({.used = used});
  EXPECT_EQ(two.runs, (Runs{{0, 2, 2}, {5, 14, 2}}));
  two.runs.clear();
  two.step({});
  EXPECT_EQ(two.runs, (Runs{{0, 2, 3}, {2, 5, 2}, {5, 14, 3}})) << "b is one update behind";
}

TEST(Clip, HugeGradientsClipToTheirDirection) {
  const Buffer w({2});
  const auto sgd = make_optimizer("sgd", w.view(), {.lr = 1});
  for (float huge : {1e20f, 1e30f, 5e37f}) {  // squares overflow f32
    w.set(w.param, {0, 0});
    w.set(w.grad, {3 * huge, -4 * huge});
    StepVerdict verdict{.factor = 0.5f};
    verdict.clip(std::sqrt(kernel::sum_of_squares(w.grad)) * verdict.factor, 1);
    EXPECT_TRUE(verdict.apply);
    sgd->step(verdict);
    EXPECT_NEAR(values(w.param)[0], -0.6, 1e-6);
    EXPECT_NEAR(values(w.param)[1], 0.8, 1e-6);
  }
}

TEST(Clip, ANonFiniteNormSkipsTheStep) {
  for (double norm : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    StepVerdict verdict{.factor = 0.5f};
    verdict.clip(norm, 1);
    EXPECT_FALSE(verdict.apply);
    EXPECT_FALSE(verdict.finite);
    EXPECT_EQ(verdict.factor, 0.5f);
  }
}

TEST(Clip, SmallGradientsAreLeftAlone) {
  StepVerdict verdict{.factor = 0.3f};
  verdict.clip(0, 1);
  verdict.clip(1, 1);
  EXPECT_EQ(verdict.factor, 0.3f);
  EXPECT_THROW(verdict.clip(1, 0), UsageError);
  EXPECT_THROW(verdict.clip(1, std::nan("")), UsageError);
}

TEST(Optimizer, TheSpecsSettingsGoBeforeTheOptions) {
  const Buffer w({1});
  const auto sgd =
      make_optimizer("sgd:momentum=0.9,nesterov", w.view(), {.lr = 1, .momentum = 0.5});
  EXPECT_EQ(sgd->options().momentum, 0.9);
  EXPECT_TRUE(sgd->options().nesterov);
  EXPECT_EQ(sgd->lr(), 1);
}

TEST(Optimizer, NamesWhatThereIs) {
  const Buffer w({1});
  const auto error = [&](const char* spec, const OptimizerOptions& options = {}) -> std::string {
    try {
      make_optimizer(spec, w.view(), options);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error("lion"),
            "[core.registry] unknown optimizer; expected adam, adamw, sgd, got 'lion'");
  EXPECT_EQ(error("sgd:beta1=0.9"),
            "[core.spec] 'sgd:beta1=0.9': unknown setting; expected momentum, dampening, nesterov, "
            "weight_decay, got 'beta1'");
  EXPECT_EQ(error("adamw", {.lr = -1}),
            "[optim.optimizer] learning rate; expected at least 0, got -1");
  EXPECT_EQ(error("adamw", {.beta2 = 1}),
            "[optim.optimizer] beta2; expected 0 <= beta2 < 1, got 1");
  EXPECT_NE(error("adamw:beta2=1"), "");
  EXPECT_NE(error("adamw", {.lr = std::nan("")}), "");
  EXPECT_NE(error("adamw", {.eps = -1}), "");
  EXPECT_NE(error("sgd", {.nesterov = true}), "");
  EXPECT_NE(error("sgd", {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), "");
  EXPECT_NE(error("sgd", {.weight_decay = -1}), "");
  EXPECT_THROW(make_optimizer("sgd", w.view(), {})->set_lr(-1), UsageError);
  const std::string help = OptimizerRegistry::instance().help();
  EXPECT_NE(help.find("nesterov"), std::string::npos);
}

TEST(Optimizer, NeedsSlicesWithoutGapsAndFlagsForAll) {
  const Buffer w({2, 2});
  FlatView holes = w.view();
  holes.slices = holes.slices.first(1);
  EXPECT_THROW(make_optimizer("sgd", holes, {}), UsageError);
  const std::vector<uint8_t> used{1};
  EXPECT_THROW(make_optimizer("sgd", w.view(), {})->step({.used = used}), UsageError);
}

}  // namespace
}  // namespace lockstep::optim
