#include "layers/batch_norm.h"

#include <gtest/gtest.h>

#include <map>

#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/no_grad.h"
#include "core/kernels/elementwise.h"
#include "core/safetensors.h"
#include "layers/group_norm.h"
#include "test_paths.h"
#include "tests/support/error_of.h"
#include "tests/support/precision.h"
#include "tests/support/tensors.h"

namespace lockstep::layers {
namespace {

using lockstep::test::error_of;
using lockstep::test::in_dtype;
using lockstep::testing::Floats;
using lockstep::testing::near;
using lockstep::testing::randn;

// A layer, what it computes of x, and the gradients that come back from dy.
struct Passes {
  Tensor y, dx;
  std::map<std::string, Tensor> parameters;  // their gradients
};
template <class Layer>
Passes run(Layer& layer, const Tensor& x, const Tensor& dy) {
  const Tensor in = from_values(values(x), x.shape());
  autograd::require_grad(in);
  for (const Parameter& p : layer.parameters())
    autograd::leaf_of(*p.slot).landing = autograd::Landing::overwrite;
  Passes passes;
  passes.y = layer(in);
  autograd::backward(passes.y, dy);
  passes.dx = autograd::grad(in);
  for (const Parameter& p : layer.parameters()) passes.parameters[p.name] = autograd::grad(*p.slot);
  return passes;
}

constexpr double kGolden = 1e-5;

class GoldenNorms : public ::testing::TestWithParam<const char*> {
 protected:
  GoldenNorms() : file_(LOCKSTEP_SOURCE_DIR "/tests/golden/norms.safetensors") {}
  Tensor value(const std::string& name) const { return file_.read(GetParam() + ("/" + name)); }
  std::string text(const std::string& key) const {
    return file_.metadata().at(GetParam() + ("/" + key));
  }
  bool has(const std::string& name) const {
    for (const auto& entry : file_.entries())
      if (entry.name == GetParam() + ("/" + name)) return true;
    return false;
  }
  template <class Layer, class AfterStep>
  void check_steps(Layer& layer, AfterStep after_step) const {
    for (const Parameter& p : layer.parameters()) kernel::copy(*p.slot, value(p.name));
    for (int k = 0; k < 3; ++k) {
      const std::string step = "/" + std::to_string(k);
      const Passes got = run(layer, value("x" + step), value("dy" + step));
      EXPECT_TRUE(near(got.y, value("y" + step), kGolden)) << step;
      EXPECT_TRUE(near(got.dx, value("dx" + step), kGolden)) << step;
      for (const auto& [name, gradient] : got.parameters)
        EXPECT_TRUE(near(gradient, value("d" + name + step), kGolden)) << name << step;
      after_step(step);
    }
    layer.set_mode(Module::Mode::evaluate);
    const Passes got = run(layer, value("x/0"), value("dy/0"));
    EXPECT_TRUE(near(got.y, value("eval/y"), kGolden));
    EXPECT_TRUE(near(got.dx, value("eval/dx"), kGolden));
  }
  SafetensorsReader file_;
};

class GoldenBatchNorm : public GoldenNorms {};
INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenBatchNorm,
                         ::testing::Values("vectors", "sequences", "images", "bare"));
TEST_P(GoldenBatchNorm, GivesTheSameForwardBackwardAndRunningStatistics) {
  BatchNormOptions options{.affine = has("weight")};
  options.momentum.reset();
  if (text("momentum") != "none") options.momentum = std::stod(text("momentum"));
  Initialiser init(1);
  BatchNorm norm(init, value("x/0").size(1), options);
  check_steps(norm, [&](const std::string& step) {
    EXPECT_TRUE(near(norm.running_mean(), value("running_mean" + step), kGolden)) << step;
    EXPECT_TRUE(near(norm.running_variance(), value("running_var" + step), kGolden)) << step;
  });
  EXPECT_EQ(norm.batches(), 3);
}

class GoldenGroupNorm : public GoldenNorms {};
INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenGroupNorm, ::testing::Values("groups", "instances"));
TEST_P(GoldenGroupNorm, GivesTheSameForwardAndBackward) {
  Initialiser init(1);
  GroupNorm norm(init, std::stoll(text("groups")), value("x/0").size(1));
  check_steps(norm, [](const std::string&) {});
}

TEST(BatchNorm, NamesWhatIsSaved) {
  Initialiser init(1);
  BatchNorm norm(init, 3), bare(init, 3, {.affine = false});
  std::vector<std::string> names;
  for (const Parameter& p : norm.parameters()) {
    EXPECT_FALSE(p.decay) << p.name;
    names.push_back(p.name);
  }
  for (const Buffer& b : norm.buffers()) names.push_back(b.name);
  EXPECT_EQ(names, (std::vector<std::string>{"weight", "bias", "running_mean", "running_var",
                                             "num_batches_tracked"}));
  EXPECT_TRUE(bare.parameters().empty());
  EXPECT_EQ(bare.buffers().size(), 3u);
}

TEST(BatchNorm, FrozenItTrainsAsItEvaluates) {
  Initialiser init(1);
  BatchNorm norm(init, 3);
  const Tensor x = randn({4, 3, 2}, 1), dy = randn({4, 3, 2}, 2);
  norm(randn({8, 3, 2}, 3, 2));
  const Floats mean = values(norm.running_mean());
  norm.set_mode(Module::Mode::evaluate);
  const Passes evaluated = run(norm, x, dy);
  norm.set_mode(Module::Mode::train);
  EXPECT_TRUE(uses_batch_statistics(norm));
  EXPECT_EQ(freeze_batch_norms(norm), 1);
  EXPECT_FALSE(uses_batch_statistics(norm));
  const Passes frozen = run(norm, x, dy);
  EXPECT_EQ(values(frozen.y), values(evaluated.y));
  EXPECT_EQ(values(frozen.dx), values(evaluated.dx));
  EXPECT_EQ(values(norm.running_mean()), mean) << "the buffers are left alone";
  EXPECT_EQ(norm.batches(), 1);
}

// Accumulating micro-batches gives the large batch's gradient under frozen statistics, and another
// one under those of the batch.
TEST(BatchNorm, FrozenStatisticsMakeAccumulationTheLargeBatch) {
  const Tensor x = randn({8, 3, 5}, 1, 2), dy = randn({8, 3, 5}, 2);
  const auto differences = [&](bool frozen) {
    Initialiser init(1);
    BatchNorm norm(init, 3);
    norm(randn({64, 3, 5}, 3, 2));
    if (frozen) norm.freeze();
    const Floats large = values(run(norm, x, dy).dx);
    double worst = 0;
    for (int64_t begin = 0; begin < 8; begin += 2) {
      const Floats small =
          values(run(norm, x.slice(begin, begin + 2), dy.slice(begin, begin + 2)).dx);
      for (size_t i = 0; i < small.size(); ++i)
        worst = std::max(worst,
                         double{std::abs(small[i] - large[static_cast<size_t>(begin) * 15 + i])});
    }
    return worst;
  };
  EXPECT_EQ(differences(true), 0);
  EXPECT_GT(differences(false), 0.05);
}

TEST(BatchNorm, ComputesInF32UnderBothAmpPresets) {
  Initialiser init(1);
  for (DType dtype : {DType::f16, DType::bf16}) {
    BatchNorm norm(init, 3), exact(init, 3);
    // A mean of 200 with a deviation of 0.1: x itself, rounded, is what both get.
    const Tensor wide = randn({64, 3}, 1, 8);
    for (float& v : std::span(wide.mutable_data<float>(), 64 * 3)) v = 200 + std::round(v);
    const Tensor x = in_dtype(wide, dtype);
    const autograd::Autocast autocast(dtype);
    const Tensor y = norm(x);
    EXPECT_EQ(name_of(y.dtype()), name_of(dtype)) << "rounded once, for the product behind";
    const Tensor expected = exact(in_dtype(x, DType::f32));
    EXPECT_EQ(values(in_dtype(y, DType::f32)), values(in_dtype(expected, DType::f32)));
    EXPECT_EQ(values(norm.running_mean()), values(exact.running_mean()));
    EXPECT_EQ(values(norm.running_variance()), values(exact.running_variance()));
    EXPECT_NEAR(values(norm.running_mean())[0], 20, 0.4);
  }
}

TEST(BatchNorm, RefusesWhatItCannotNormalise) {
  Initialiser init(1);
  BatchNorm norm(init, 3);
  EXPECT_EQ(error_of([&] {
              norm(zeros({2, 4}));
            }),
            "[layers.batch_norm] expected [N, 3, ...], got [2, 4]");
  EXPECT_THROW(norm(zeros({3})), UsageError);
  EXPECT_THROW(BatchNorm(init, 0), UsageError);
  EXPECT_THROW(BatchNorm(init, 3, {.momentum = 1.5}), UsageError);
  EXPECT_THROW(GroupNorm(init, 2, 3), UsageError);
}

TEST(BatchNorm, AnEmptyBatchChangesNothing) {
  Initialiser init(1);
  BatchNorm norm(init, 2);
  const Passes passes = run(norm, zeros({0, 2, 3}), zeros({0, 2, 3}));
  EXPECT_EQ(passes.dx.shape(), (Shape{0, 2, 3}));
  EXPECT_EQ(values(passes.parameters.at("weight")), Floats(2, 0.0f));
  EXPECT_EQ(norm.batches(), 0);
  EXPECT_EQ(values(norm.running_variance()), Floats(2, 1.0f));
}

TEST(KnownFaults, O14_BatchNormOfOneValueAChannelIsAnError) {
  Initialiser init(1);
  BatchNorm norm(init, 2);
  EXPECT_EQ(
      error_of([&] {
        norm(from_values<float>({1, 2}, {1, 2}));
      }),
      "[layers.batch_norm] training; expected more than one value a channel, got [1, 2] here");
  EXPECT_EQ(values(norm.running_variance()), Floats(2, 1.0f));
  norm.set_mode(Module::Mode::evaluate);
  EXPECT_EQ(values(norm(from_values<float>({0, 0}, {1, 2}))), Floats(2, 0.0f));
}

TEST(KnownFaults, O14_NormalisesWithTheBiasedVarianceAndStoresTheUnbiased) {
  Initialiser init(1);
  BatchNorm norm(init, 1, {.eps = 1e-12f});
  const Floats y = values(norm(from_values<float>({2, 4, 6, 8}, {4, 1})));
  EXPECT_NEAR(y[3], 3 / std::sqrt(5.0), 1e-6);
  EXPECT_NEAR(values(norm.running_mean())[0], 0.5, 1e-6);
  EXPECT_NEAR(values(norm.running_variance())[0], 1.5666667, 1e-6);
}

TEST(KnownFaults, O14_OneBatchThatOverflowsDoesNotSpoilTheRunningValues) {
  Initialiser init(1);
  BatchNorm norm(init, 1);
  norm(from_values<float>({INFINITY, 1, 2}, {3, 1}));
  EXPECT_EQ(values(norm.running_mean()), Floats{0});
  EXPECT_EQ(values(norm.running_variance()), Floats{1});
}

// [N][L][C] in memory, seen as [N, C, L]: in this framework that is a copy, and the same memory can
// be normalised as [N·L, C] where it lies.
TEST(KnownFaults, O15_NormalisationOfAPermutedInput) {
  const Tensor memory = from_values<float>({0, 1, 2, 3, 4, 5, 6, 7}, {4, 2}),
               copy = from_values<float>({0, 2, 1, 3, 4, 6, 5, 7}, {2, 2, 2}),
               dy = from_values<float>({1, -2, 0.5, 3, -1, 2, 4, 0}, {4, 2}),
               dy_copy = from_values<float>({1, 0.5, -2, 3, -1, 4, 2, 0}, {2, 2, 2});
  Initialiser init(1);
  BatchNorm by_lines(init, 2, {.momentum = 1}), by_planes(init, 2, {.momentum = 1});
  const Passes lines = run(by_lines, memory, dy), planes = run(by_planes, copy, dy_copy);
  for (BatchNorm* norm : {&by_lines, &by_planes}) {
    EXPECT_EQ(values(norm->running_mean()), (Floats{3, 4}));
    EXPECT_NEAR(values(norm->running_variance())[0], 20.0 / 3, 1e-5);
    EXPECT_NEAR(values(norm->running_variance())[1], 20.0 / 3, 1e-5);
  }
  const int order[] = {0, 2, 1, 3, 4, 6, 5, 7};  // where a plane's elements lie in memory
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(values(planes.y)[i], values(lines.y)[order[i]], 1e-6);
    EXPECT_NEAR(values(planes.dx)[i], values(lines.dx)[order[i]], 1e-6);
  }
}

}  // namespace
}  // namespace lockstep::layers
