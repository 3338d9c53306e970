// Parameters and gradients narrower than f32: master weights, and what is lost without them.
#include "tests/optim/recipes.h"

#include "core/allocator.h"
#include "core/kernels/reduce.h"
#include "tests/support/precision.h"

namespace lockstep::optim {
namespace {

using test::floats;
using test::in_dtype;
using test::kNarrow;

// The master does what an f32 optimiser does with the same values, bit for bit.
TEST_P(Recipes, AMasterIsSteppedLikeF32Weights) {
  const Recipe& recipe = GetParam();
  for (DType params : kNarrow)
    for (DType grads : {DType::f32, DType::f16, DType::bf16}) {
      const Buffer low({30, 7, 3000}, {true, false, true}, params, grads);
      const Buffer wide({30, 7, 3000}, {true, false, true});
      low.set(low.param, random_values(3037, 9));
      kernel::cast(wide.param, low.param);
      const auto one = make_optimizer(recipe.spec, low.view(), recipe.options);
      const auto two = make_optimizer(recipe.spec, wide.view(), recipe.options);
      for (uint32_t s = 0; s < 4; ++s) {
        const std::vector<uint8_t> used{1, s != 1, s != 2};
        low.set(low.grad, random_values(3037, s));
        kernel::cast(wide.grad, low.grad);
        one->step({.factor = 0.5f, .used = used});
        two->step({.factor = 0.5f, .used = used});
        ASSERT_EQ(floats(one->weights()), floats(wide.param));
        ASSERT_EQ(floats(low.param), floats(in_dtype(wide.param, params)))
            << "the parameters are the master, rounded once";
      }
    }
}

// Without one each step is made in f32 from the narrow value and rounded back.
TEST_P(Recipes, WithoutAMasterEachStepIsRounded) {
  const Recipe& recipe = GetParam();
  OptimizerOptions options = recipe.options;
  options.master = false;
  for (DType params : kNarrow) {
    const Buffer low({30, 7, 3000}, {true, false, true}, params, DType::f16);
    const Buffer wide({30, 7, 3000}, {true, false, true});
    low.set(low.param, random_values(3037, 9));
    const auto one = make_optimizer(recipe.spec, low.view(), options);
    const auto two = make_optimizer(recipe.spec, wide.view(), options);
    EXPECT_TRUE(one->weights().is(low.param));
    for (uint32_t s = 0; s < 4; ++s) {
      kernel::cast(wide.param, low.param);
      low.set(low.grad, random_values(3037, s));
      kernel::cast(wide.grad, low.grad);
      one->step({});
      two->step({});
      ASSERT_EQ(floats(low.param), floats(in_dtype(wide.param, params)));
    }
  }
}

TEST_P(Recipes, StopAndResumeWithAMasterIsTheUninterruptedRun) {
  const Recipe& recipe = GetParam();
  const auto bf16 = DType::bf16;
  const Buffer whole({3, 40}, {true, false}, bf16, bf16), parts({3, 40}, {true, false}, bf16, bf16);
  const auto one = make_optimizer(recipe.spec, whole.view(), recipe.options);
  auto two = make_optimizer(recipe.spec, parts.view(), recipe.options);
  for (uint32_t s = 0; s < 6; ++s) {
    if (s == 3) {
      const MemoryState state = state_of(*two);
      kernel::fill(parts.param, 7);
      two = make_optimizer(recipe.spec, parts.view(), recipe.options);
      state.load([&](StateIo& io) { two->state(io); });
      two->publish();  // the parameters follow from the master
      EXPECT_EQ(floats(parts.param), floats(whole.param));
    }
    step(*one, whole, random_values(43, s));
    step(*two, parts, random_values(43, s));
  }
  EXPECT_EQ(floats(whole.param), floats(parts.param));
  EXPECT_TRUE(state_of(*one) == state_of(*two));
}

TEST_P(Recipes, AStepWithAMasterAsksForNoMemoryOnceWarm) {
  const Recipe& recipe = GetParam();
  const Buffer buffer({30, 7, 40}, {true, false, true}, DType::f16, DType::f16);
  const auto optimizer = make_optimizer(recipe.spec, buffer.view(), recipe.options);
  for (int i = 0; i < 3; ++i) optimizer->step({});
  const int64_t before = host_allocator().stats().requests;
  for (int i = 0; i < 10; ++i) optimizer->step({});
  EXPECT_EQ(host_allocator().stats().requests, before);
}

// Value, master, moments and count stay, and so does the version: nothing casts it again.
TEST_P(Recipes, AnUnusedParameterKeepsItsMaster) {
  const Recipe& recipe = GetParam();
  struct Pair : layers::Module {
    Pair() {
      add_parameter("a", a, Decay::yes);
      add_parameter("b", b, Decay::yes);
    }
    Tensor a = full({3}, 1.001), b = full({3}, 1.001);
  } pair;
  const FlatParams params(pair, {DType::bf16, DType::bf16, DType::f32});
  const auto optimizer = make_optimizer(recipe.spec, params.all(), recipe.options);
  kernel::fill(params.all().grad, 1);
  optimizer->step({});
  const std::vector<float> value = floats(pair.b), master = floats(optimizer->weights());
  const uint64_t version_a = pair.a.version(), version_b = pair.b.version();
  const std::vector<uint8_t> used{0, 1};  // b comes first
  optimizer->step({.used = used});
  EXPECT_EQ(floats(pair.b), value);
  const std::vector<float> after = floats(optimizer->weights());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(after[i], master[i]);
  for (int i = 3; i < 6; ++i) EXPECT_NE(after[i], master[i]);
  EXPECT_EQ(pair.b.version(), version_b);
  EXPECT_NE(pair.a.version(), version_a);
}

TEST(Optimizer, AveragesAreWrittenIntoTheAuthorityAndPublished) {
  struct One : layers::Module {
    One() { add_parameter("w", w, Decay::no); }
    Tensor w = full({4}, 1);
  };
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    One module;
    const FlatParams params(module, {dtype, DType::f32, DType::f32});
    const auto optimizer = make_optimizer("sgd", params.all(), {});
    const FlatView authority = optimizer->authority();
    EXPECT_EQ(authority.param.dtype(), DType::f32);
    EXPECT_EQ(authority.param.is(params.all().param), dtype == DType::f32);
    EXPECT_EQ(authority.params.empty(), dtype != DType::f32) << "they do not see what is written";
    ASSERT_EQ(authority.slices.size(), 1u);
    EXPECT_EQ(authority.slices[0].name, "w");
    EXPECT_TRUE(authority.grad.is(params.all().grad));
    const uint64_t version = module.w.version();
    kernel::fill(authority.param, 0.9);  // an average
    optimizer->publish();
    EXPECT_EQ(floats(module.w), floats(full({4}, 0.9, dtype)));
    EXPECT_EQ(floats(optimizer->weights()), std::vector<float>(4, 0.9f)) << "unrounded";
    EXPECT_NE(module.w.version(), version);
  }
}

TEST(KnownFaults, O12_Bf16WeightsNeedAMaster) {
  const auto train = [](bool master, int steps, const OptimizerOptions& options,
                        const std::string& spec, float gradient) {
    const Buffer w({1}, {true}, DType::bf16, DType::bf16);
    w.set(w.param, {1});
    OptimizerOptions o = options;
    o.master = master;
    const auto optimizer = make_optimizer(spec, w.view(), o);
    for (int i = 0; i < steps; ++i) step(*optimizer, w, {gradient});
    return std::pair{floats(w.param)[0], floats(optimizer->weights())[0]};
  };
  const OptimizerOptions rate{.lr = 0.001};
  EXPECT_EQ(train(false, 1000, rate, "sgd", 1).first, 1.0f) << "pure bf16 stays for ever";
  EXPECT_EQ(train(true, 100, rate, "sgd", 1).first, 0.8984375f);
  EXPECT_NEAR(train(true, 100, rate, "sgd", 1).second, 0.9, 1e-5);
  EXPECT_LT(std::abs(train(true, 1000, rate, "sgd", 1).first), 1e-4);
  // Decoupled decay of 1e-4 a step.
  const OptimizerOptions decay{.lr = 0.001, .weight_decay = 0.1};
  EXPECT_EQ(train(false, 1000, decay, "adamw", 0).first, 1.0f);
  EXPECT_NEAR(train(true, 1000, decay, "adamw", 0).second, std::pow(1 - 1e-4, 1000), 3e-5);
  EXPECT_EQ(train(true, 1000, decay, "adamw", 0).first, 0.90625f) << "0.9048, rounded";
  // The master is in the state.
  const Buffer w({1}, {}, DType::bf16);
  const std::vector<std::string> names = state_of(*make_optimizer("sgd", w.view(), {})).names();
  EXPECT_NE(std::find(names.begin(), names.end(), "master"), names.end());
}

// O06 (a), (b), (c): the gradient buffer is narrow, the factor is applied as it is read.
TEST(KnownFaults, O06_ClipAndUnscaleNarrowGradients) {
  for (DType grads : kNarrow) {
    const auto stepped = [&](std::vector<int64_t> sizes, const std::vector<float>& gradient,
                             float factor, double max_norm) {
      const Buffer w(std::move(sizes), {}, DType::f32, grads);
      const auto sgd = make_optimizer("sgd", w.view(), {.lr = 1});
      w.set(w.grad, gradient);
      StepVerdict verdict{.factor = factor};
      verdict.clip(std::sqrt(kernel::sum_of_squares(w.grad)) * verdict.factor, max_norm);
      sgd->step(verdict);
      EXPECT_EQ(floats(w.grad), gradient) << "nothing is unscaled in place";
      return floats(w.param);
    };
    const std::vector<float> averaged = stepped({2}, {6, 8}, 0.5f, 1);  // [6, 0] + [0, 8]
    EXPECT_FLOAT_EQ(averaged[0], -0.6f);
    EXPECT_FLOAT_EQ(averaged[1], -0.8f);
    EXPECT_EQ(stepped({2}, {3 * 1024, 4 * 1024}, 1.0f / 1024, 10), (std::vector<float>{-3, -4}));
    const std::vector<float> groups = stepped({1, 1}, {3, 4}, 1, 1);
    EXPECT_FLOAT_EQ(groups[0], -0.6f);
    EXPECT_FLOAT_EQ(groups[1], -0.8f);
  }
}

}  // namespace
}  // namespace lockstep::optim
