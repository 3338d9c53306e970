// Cases of the catalogue of known faults, at the level of operations and gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/no_grad.h"
#include "autograd/node.h"
#include "autograd/ops.h"
#include "core/parallel.h"
#include "tests/support/precision.h"
#include "tests/support/tensors.h"

namespace lockstep::ops {
namespace {

using autograd::backward;
using autograd::grad;
using lockstep::testing::Floats;
using lockstep::testing::near;
using lockstep::testing::randn;

Tensor leaf(const Floats& v, const Shape& shape) {
  Tensor x = from_values(v, shape);
  autograd::require_grad(x);
  return x;
}
bool finite(const Tensor& x) {
  const Floats v = values(x);
  return std::all_of(v.begin(), v.end(), [](float f) { return std::isfinite(f); });
}

TEST(KnownFaults, O27_CrossEntropyExtremes) {
  for (const auto& [row, loss] :
       {std::pair{Floats{10, 0, -100}, 110.0000454}, std::pair{Floats{50, 0, -120}, 170.0}}) {
    const Tensor x = leaf(row, {1, 3});
    const Tensor y = softmax_cross_entropy_sum(x, from_values<int32_t>({2}));
    EXPECT_NEAR(y.item(), loss, 1e-6 * loss);
    backward(y);
    EXPECT_TRUE(finite(grad(x)));
    EXPECT_NEAR(values(grad(x))[2], -1, 1e-6);
  }
}
TEST(KnownFaults, O27_CrossEntropyOfHugeEqualLogits) {
  const Tensor x = leaf(Floats(7, 1e30f), {1, 7});
  const Tensor y = softmax_cross_entropy_sum(x, from_values<int32_t>({3}));
  EXPECT_NEAR(y.item(), std::log(7.0), 1e-6);
  backward(y);
  EXPECT_NEAR(values(grad(x))[0], 1.0 / 7, 1e-6);
  EXPECT_NEAR(values(grad(x))[3], 1.0 / 7 - 1, 1e-6);
}
TEST(KnownFaults, O27_CrossEntropyOfTheLargestHalfLogits) {
  const Tensor x = leaf({float(half(60000.0f)), float(half(-60000.0f))}, {1, 2});
  const Tensor y = softmax_cross_entropy_sum(x, from_values<int32_t>({1}));
  EXPECT_NEAR(y.item(), 120000, 64);
  backward(y);
  EXPECT_EQ(values(grad(x)), (Floats{1, -1}));
}
// The loss is f32 and the gradient narrow, whatever lies beyond the range of f16.
TEST(KnownFaults, O27_LossesOfNarrowLogits) {
  for (DType dtype : test::kNarrow) {
    const auto losses = [&](const Floats& logits,
                            const std::function<Tensor(const Tensor&)>& loss) {
      const Tensor x =
          test::in_dtype(leaf(logits, {1, static_cast<int64_t>(logits.size())}), dtype);
      autograd::require_grad(x);
      const Tensor y = loss(x);
      EXPECT_EQ(y.dtype(), DType::f32);
      backward(y);
      EXPECT_EQ(grad(x).dtype(), dtype);
      return std::pair{y.item(), test::floats(grad(x))};
    };
    const auto entropy = [](const Tensor& x) {
      return softmax_cross_entropy_sum(x,
                                       from_values<int32_t>({static_cast<int32_t>(x.size(1)) - 1}));
    };
    EXPECT_NEAR(losses({10, 0, -100}, entropy).first, 110.0000454, 1e-4);
    EXPECT_EQ(losses({10, 0, -100}, entropy).second[2], -1.0f);
    const auto [large, slope] = losses({60000, -60000}, entropy);
    EXPECT_NEAR(large, 120000, dtype == DType::f16 ? 64 : 512) << "beyond f16's 65504";
    EXPECT_EQ(slope, (Floats{1, -1}));
    const auto bce = [](const Tensor& x) { return bce_with_logits_sum(x, zeros({1, 1})); };
    EXPECT_EQ(losses({1000}, bce).first, 1000);
    EXPECT_EQ(losses({1000}, bce).second, Floats{1});
    EXPECT_NEAR(losses({50},
                       [](const Tensor& x) {
                         return bce_with_logits_sum(scale(x, -1), full({1, 1}, 1));
                       })
                    .second[0],
                1, 1e-6);
  }
}
TEST(KnownFaults, O27_AllTargetsIgnoredGiveZero) {
  const Tensor x = leaf({1, 2, 3, std::numeric_limits<float>::max()}, {2, 2});
  const Tensor y = softmax_cross_entropy_sum(x, from_values<int32_t>({-100, -100}));
  EXPECT_EQ(y.item(), 0);
  backward(y);
  EXPECT_EQ(values(grad(x)), Floats(4, 0.0f));
}
TEST(KnownFaults, O27_BceExtremes) {
  for (const auto& [logit, target, loss, slope] : {std::array<float, 4>{1000, 0, 1000, 1},
                                                   {-50, 1, 50, -1},
                                                   {-1000, 0, 0, 0},
                                                   {20, 0, 20, 1}}) {
    const Tensor x = leaf({logit}, {1});
    const Tensor y = bce_with_logits_sum(x, from_values<float>({target}));
    EXPECT_NEAR(y.item(), loss, 1e-6 * std::max(1.0f, loss));
    backward(y);
    EXPECT_NEAR(values(grad(x))[0], slope, 1e-6);
  }
}

TEST(KnownFaults, O28_LayerNormWithALargeMean) {
  const Tensor gamma = leaf(Floats(4, 1.0f), {4});
  const Tensor x = leaf({40000, 40001, 40002, 40003}, {1, 4});
  const Tensor y = layer_norm(x, gamma, {});
  const Floats expected = {-1.3416354f, -0.4472118f, 0.4472118f, 1.3416354f};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(values(y)[i], expected[i], 1e-4);
  backward(sum(multiply(y, from_values<float>({1, 2, 3, 5}, {1, 4}))));
  EXPECT_TRUE(finite(grad(x)) && finite(grad(gamma)));
  // Its gradient is that of the same row without its mean.
  const Tensor small = leaf({0, 1, 2, 3}, {1, 4});
  backward(sum(multiply(layer_norm(small, gamma, {}), from_values<float>({1, 2, 3, 5}, {1, 4}))));
  EXPECT_TRUE(near(grad(x), grad(small), 1e-4));
}
TEST(KnownFaults, O28_LayerNormOfAConstantRow) {
  const Tensor gamma = leaf(Floats(4, 1.0f), {4});
  const Tensor x = leaf(Floats(4, 40000.0f), {1, 4});
  const Tensor y = layer_norm(x, gamma, {});
  EXPECT_EQ(values(y), Floats(4, 0.0f));
  backward(sum(multiply(y, from_values<float>({1, 2, 3, 5}, {1, 4}))));
  EXPECT_TRUE(finite(grad(x)) && finite(grad(gamma)));
}
TEST(KnownFaults, O28_VarianceOfManyValuesNearOneHundred) {
  const int64_t n = 32768;
  const Random random(3, RandomStream::tests);
  Floats v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>(100 + 0.01 * random.normal(i));
  double mean = 0, variance = 0;
  for (float f : v) mean += f / double(n);
  for (float f : v) variance += (f - mean) * (f - mean) / double(n);
  ASSERT_NEAR(variance, 1e-4, 2e-6);
  const Floats y = values(layer_norm(from_values(v, {1, n}), full({n}, 1), {}));
  double got = 0;  // Σ y² / n = variance / (variance + eps)
  for (float f : y) got += double{f} * f / double(n);
  EXPECT_NEAR(got, variance / (variance + 1e-5), 0.01 * got);
}

TEST(KnownFaults, O30_BroadcastGradients) {
  {
    const Tensor a = leaf({1, 2}, {2, 1}), b = leaf({3, 4, 5}, {1, 3});
    backward(sum(multiply(a, b)));
    EXPECT_EQ(values(grad(a)), (Floats{12, 12}));
    EXPECT_EQ(values(grad(b)), (Floats{3, 3, 3}));
    EXPECT_EQ(grad(a).shape(), (Shape{2, 1}));
    EXPECT_EQ(grad(b).shape(), (Shape{1, 3}));
  }
  {
    const Tensor bias = leaf({1, 1, 1}, {3});
    backward(sum(add(full({2, 3}, 1), bias)));
    EXPECT_EQ(values(grad(bias)), (Floats{2, 2, 2}));
  }
  {
    const Tensor factor = leaf({2}, {});
    backward(sum(multiply(factor, from_values<float>({3, 4}))));
    EXPECT_EQ(values(grad(factor)), Floats{7});
    EXPECT_EQ(grad(factor).shape(), Shape{});
  }
  {
    const Tensor a = leaf({1, 2, 3, 4}, {4, 1}), b = leaf({1, 1, 1, 2}, {1, 4});
    backward(sum(multiply(a, b)));
    EXPECT_EQ(values(grad(a)), (Floats{5, 5, 5, 5}));
    EXPECT_EQ(values(grad(b)), (Floats{10, 10, 10, 10}));
  }
}
TEST(KnownFaults, O30_GradientOfADeviationFromTheMeanIsZero) {
  const Tensor x = leaf({1, 2, 4, 9}, {4});
  const Tensor y = subtract(x, mean(x));
  backward(y, full({4}, 1));
  for (float d : values(grad(x))) EXPECT_NEAR(d, 0, 1e-6);
}
TEST(KnownFaults, O30_RetentionOverAThousandSteps) {
  const Tensor w = leaf({0.5f, 0.25f, -0.5f, 1}, {2, 2}), x = full({3, 2}, 1);
  const int64_t nodes = autograd::live_nodes();
  double total = 0;
  for (int step = 0; step < 1000; ++step) {
    const Tensor loss = sum(gelu(linear(x, w)));
    backward(loss);
    autograd::leaf_of(w).landing = autograd::Landing::overwrite;
    kernel::add_scaled(w, grad(w), -1e-3f);
    total += loss.item();
    ASSERT_LE(autograd::live_nodes(), nodes + 1)
        << "step " << step;  // the loss that is still in scope
  }
  EXPECT_EQ(autograd::live_nodes(), nodes);
  EXPECT_TRUE(std::isfinite(total));
}
TEST(KnownFaults, O30_RetentionWithoutBackward) {
  const Tensor w = leaf({1}, {});
  const int64_t nodes = autograd::live_nodes();
  for (int step = 0; step < 1000; ++step) gelu(gelu(w));
  EXPECT_EQ(autograd::live_nodes(), nodes);
  const autograd::NoGrad off;
  const Tensor y = gelu(gelu(w));
  EXPECT_EQ(autograd::live_nodes(), nodes);
}
TEST(KnownFaults, O30_SecondBackwardThroughAFreedGraph) {
  const Tensor w = leaf({1}, {});
  const Tensor loss = gelu(w);
  backward(loss);
  EXPECT_THROW(backward(loss), UsageError);
  const Tensor twice = add(w, w);  // saves nothing that could be missing
  backward(twice);
  EXPECT_THROW(backward(twice), UsageError);
}
TEST(KnownFaults, O30_GradientThroughADetachedTensorStops) {
  const Tensor w = leaf({3}, {});
  const Tensor h = scale(w, 2);
  backward(add(multiply(h.detach(), full({}, 5)), scale(w, 7)));
  EXPECT_EQ(values(grad(w)), Floats{7});
}

TEST(KnownFaults, O24_LabelsOutOfRange) {
  const Tensor x = leaf(Floats(5, 0.5f), {1, 5});
  for (int64_t label : {int64_t{5}, int64_t{-1}, int64_t{-4}, int64_t{1} << 40})
    EXPECT_THROW(softmax_cross_entropy_sum(x, from_values<int64_t>({label})), UsageError) << label;
  for (int32_t label : {5, -1, -4})
    EXPECT_THROW(softmax_cross_entropy_sum(x, from_values<int32_t>({label})), UsageError) << label;
  EXPECT_NO_THROW(softmax_cross_entropy_sum(x, from_values<int64_t>({-100})));
  EXPECT_NO_THROW(softmax_cross_entropy_sum(x, from_values<int64_t>({-1}), -1));
  EXPECT_THROW(softmax_cross_entropy_sum(x, from_values<int64_t>({-100}), -1), UsageError);
  EXPECT_EQ(values(x), Floats(5, 0.5f));
}
TEST(KnownFaults, O24_RowsOutOfRange) {
  const Tensor table = leaf(Floats(20, 0.5f), {10, 2});
  for (int64_t id : {int64_t{10}, int64_t{-1}, int64_t{1} << 31, (int64_t{1} << 32) + 3})
    EXPECT_THROW(embedding(table, from_values<int64_t>({0, id})), UsageError) << id;
  for (int32_t id : {10, -1})
    EXPECT_THROW(embedding(table, from_values<int32_t>({0, id})), UsageError) << id;
  EXPECT_EQ(values(table), Floats(20, 0.5f));
}
TEST(KnownFaults, O24_ErrorNamesPlaceAndValue) {
  try {
    softmax_cross_entropy_sum(full({3, 5}, 0), from_values<int32_t>({0, 1, 7}));
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find('2'), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find('7'), std::string::npos) << e.what();
  }
}

TEST(KnownFaults, O26_PaddingRowGetsNoGradientButKeepsItsValue) {
  const Tensor table = leaf({4, 5, 6, 7}, {2, 2});
  std::vector<int32_t> ids(5000, 0);
  ids.push_back(1);
  const Tensor y = embedding(table, from_values(ids), 0);
  EXPECT_EQ(values(y)[0], 4);
  backward(sum(y));
  EXPECT_EQ(values(grad(table)), (Floats{0, 0, 1, 1}));
}

TEST(KnownFaults, O47_MatrixProductInAllStorages) {
  const Floats a = {1, 2, 3, 4, 5, 6}, at = {1, 4, 2, 5, 3, 6};
  const Floats b = {1, 0, 2, -1, 3, 1, 0, 2, -1, 2, 1, 0},
               bt = {1, 3, -1, 0, 1, 2, 2, 0, 1, -1, 2, 0};
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      const Tensor x = leaf(ta ? at : a, ta ? Shape{3, 2} : Shape{2, 3});
      const Tensor w = leaf(tb ? bt : b, tb ? Shape{4, 3} : Shape{3, 4});
      const Tensor y = matmul(x, w, {ta, tb});
      EXPECT_EQ(y.shape(), (Shape{2, 4}));
      EXPECT_EQ(values(y), (Floats{4, 8, 5, 3, 13, 17, 14, 6})) << ta << tb;
      backward(y, full({2, 4}, 1));  // upstream ones
      EXPECT_EQ(values(grad(x)), ta ? (Floats{2, 2, 6, 6, 2, 2}) : (Floats{2, 6, 2, 2, 6, 2}))
          << ta << tb;
      EXPECT_EQ(values(grad(w)), tb ? (Floats{5, 7, 9, 5, 7, 9, 5, 7, 9, 5, 7, 9})
                                    : (Floats{5, 5, 5, 5, 7, 7, 7, 7, 9, 9, 9, 9}))
          << ta << tb;
    }
}
TEST(KnownFaults, O47_LinearOfUnequalSizes) {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor w = leaf({1, 3, -1, 0, 1, 2, 2, 0, 1, -1, 2, 0}, {4, 3}),
               b = leaf(Floats(4, 0.0f), {4});
  const Tensor y = linear(x, w, b);
  EXPECT_EQ(values(y), (Floats{4, 8, 5, 3, 13, 17, 14, 6}));
  backward(y, full({2, 4}, 1));
  EXPECT_EQ(values(grad(x)), (Floats{2, 6, 2, 2, 6, 2}));
  EXPECT_EQ(values(grad(w)), (Floats{5, 7, 9, 5, 7, 9, 5, 7, 9, 5, 7, 9}));
  EXPECT_EQ(values(grad(b)), (Floats{2, 2, 2, 2}));
}

// Tensors have no strides: a permuted view cannot be made, and a permuted copy is what it says. If
// views with strides ever appear, this is the case they must pass.
TEST(KnownFaults, O15_NormalisationOfAPermutedCopy) {
  // Memory 0..7 as [N, L, C]; by channel: {0,2,4,6} and {1,3,5,7}. Rows of the copy are channels.
  const Tensor memory = from_values<float>({0, 1, 2, 3, 4, 5, 6, 7}, {2, 2, 2});
  Floats permuted;
  for (int c = 0; c < 2; ++c)
    for (int n = 0; n < 2; ++n)
      for (int l = 0; l < 2; ++l) permuted.push_back(memory.data<float>()[(n * 2 + l) * 2 + c]);
  const Tensor x = leaf(permuted, {2, 4});
  const Tensor y = layer_norm(x, full({4}, 1), {}, 0);
  const double sd = std::sqrt(5.0);
  for (int c = 0; c < 2; ++c)
    for (int i = 0; i < 4; ++i)
      EXPECT_NEAR(values(y)[c * 4 + i], (2 * i - 3) / sd, 1e-5);  // means 3 and 4
  EXPECT_EQ(memory.reshape({8}).data<float>()[1], 1) << "a reshape keeps the order of the elements";
}
TEST(KnownFaults, O15_GradientOfATransposedUseLandsInTheRightElements) {
  const Tensor w = leaf({0, 1, 2, 10, 11, 12}, {2, 3});
  // Σ (i·10 + j) · w, by way of the transposed operand: trace(Gᵀ w).
  const Tensor g = from_values<float>({0, 1, 2, 10, 11, 12}, {2, 3});
  const Tensor y = matmul(w, g, {.a = true});  // [3, 3]; its trace is wanted
  backward(y, from_values<float>({1, 0, 0, 0, 1, 0, 0, 0, 1}, {3, 3}));
  EXPECT_EQ(values(grad(w)), values(g));
}

TEST(KnownFaults, O20_DropoutMasksDifferBetweenSamplesAndRepeat) {
  const Tensor ones = full({1, 64}, 1);
  const auto mask = [&](uint64_t seed, uint32_t site, int64_t sample) {
    return values(dropout(ones, 0.5f, {seed, site, sample}));
  };
  const Floats base = mask(1, 2, 3);
  EXPECT_EQ(mask(1, 2, 3), base);
  EXPECT_NE(mask(2, 2, 3), base);
  EXPECT_NE(mask(1, 3, 3), base);
  EXPECT_NE(mask(1, 2, 4), base);
  EXPECT_NE(mask(1, 2, 3 + (int64_t{1} << 32)), base);
  for (float v : base) EXPECT_TRUE(v == 0 || v == 2);
}
TEST(KnownFaults, O20_DropoutOfAnySplitAgrees) {
  const Tensor x = full({6, 5, 7}, 1);
  const Floats whole = values(dropout(x, 0.3f, {9, 1, 100}));
  for (int64_t pieces : {2, 3, 6}) {
    Floats parts;
    const int64_t rows = 6 / pieces;
    for (int64_t p = 0; p < pieces; ++p) {
      const Floats part =
          values(dropout(x.slice(p * rows, (p + 1) * rows), 0.3f, {9, 1, 100 + p * rows}));
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, whole) << pieces;
  }
}
TEST(KnownFaults, O20_DropoutBackwardUsesTheSameMask) {
  const Tensor x = leaf(Floats(400, 1.0f), {4, 100});
  const Tensor y = dropout(x, 0.25f, {9, 1, 0});
  backward(y, full({4, 100}, 1));
  EXPECT_EQ(values(grad(x)), values(y));
  double kept = 0;
  for (float v : values(y)) kept += v > 0;
  EXPECT_NEAR(kept / 400, 0.75, 5 * std::sqrt(0.75 * 0.25 / 400));
}

TEST(KnownFaults, O38_EmbeddingBackwardRepeatsBitForBit) {
  std::vector<int32_t> ids(30000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i % 3);
  const int64_t width = 40;  // several threads' worth of columns
  const Tensor upstream = randn({30000, width}, 1);
  Floats first;
  for (int threads : {1, 8, 1, 8, 3}) {
    const ThreadBudget budget(threads);
    const Tensor table = leaf(Floats(3 * width, 0.0f), {3, width});
    backward(embedding(table, from_values(ids)), upstream);
    if (first.empty()) first = values(grad(table));
    EXPECT_EQ(values(grad(table)), first) << threads;
  }
}

}  // namespace
}  // namespace lockstep::ops
