// Promise 7: every operation's backward against difference quotients.
#include "autograd/gradcheck.h"

#include <gtest/gtest.h>

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/ops.h"
#include "autograd/record.h"
#include "tests/support/tensors.h"

namespace lockstep::ops {
namespace {

using autograd::gradcheck;
using lockstep::testing::randn;
using lockstep::testing::uniform;
using In = const std::vector<Tensor>&;

// The checker itself must see a wrong backward.
struct WrongNode final : autograd::Node {
  std::string_view name() const override { return "wrong"; }
  autograd::Tensors backward(const autograd::Tensors& dy) override {
    Tensor dx = empty_like(dy[0]);
    kernel::scale(dx, dy[0], 2.2f);  // should be 2
    return {dx};
  }
};
TEST(Gradcheck, SeesAWrongBackward) {
  const auto wrong = [](In x) {
    Tensor y = empty_like(x[0]);
    kernel::scale(y, x[0], 2);
    return autograd::record<WrongNode>(y, {x[0]}, [](WrongNode&) {});
  };
  EXPECT_NE(gradcheck(wrong, {randn({5}, 1)}), "");
}
TEST(Gradcheck, SeesAMissingGradient) {
  EXPECT_EQ(gradcheck([](In x) { return scale(x[0], 2); }, {randn({2}, 1), randn({2}, 2)}),
            "input 1 got no gradient");
}
TEST(Gradcheck, LeavesItsInputsAlone) {
  const Tensor x = randn({3}, 1);
  const auto before = values(x);
  EXPECT_EQ(gradcheck([](In in) { return scale(in[0], 2); }, {x}), "");
  EXPECT_EQ(values(x), before);
  EXPECT_FALSE(autograd::requires_grad(x));
}

TEST(Gradcheck, BinaryOperationsWithAndWithoutBroadcasting) {
  const std::pair<Shape, Shape> shapes[] = {{{2, 3}, {2, 3}},    {{2, 3}, {3}},
                                            {{2, 1}, {1, 3}},    {{}, {4}},
                                            {{2, 3, 4}, {3, 1}}, {{3}, {2, 1, 1}}};
  for (const auto& [a, b] : shapes) {
    const std::vector<Tensor> in = {randn(a, 1), uniform(b, 2, 0.7, 1.9)};
    EXPECT_EQ(gradcheck([](In x) { return add(x[0], x[1]); }, in), "");
    EXPECT_EQ(gradcheck([](In x) { return subtract(x[0], x[1]); }, in), "");
    EXPECT_EQ(gradcheck([](In x) { return multiply(x[0], x[1]); }, in), "");
    EXPECT_EQ(gradcheck([](In x) { return divide(x[0], x[1]); }, in), "");
  }
}
TEST(Gradcheck, BinaryOperationsWithTheSameInputTwice) {
  EXPECT_EQ(gradcheck([](In x) { return add(x[0], x[0]); }, {randn({3}, 1)}), "");
  EXPECT_EQ(gradcheck([](In x) { return subtract(scale(x[0], 3), x[0]); }, {randn({3}, 1)}), "");
  EXPECT_EQ(gradcheck([](In x) { return multiply(x[0], x[0]); }, {randn({3}, 1)}), "");
  EXPECT_EQ(gradcheck([](In x) { return divide(scale(x[0], 3), multiply(x[0], x[0])); },
                      {uniform({3}, 1, 1, 2)}),
            "");
}
TEST(Gradcheck, BinaryOperationsWithOneConstantSide) {
  const Tensor c = uniform({3}, 9, 1, 2);
  EXPECT_EQ(gradcheck([&](In x) { return multiply(c, x[0]); }, {randn({2, 3}, 1)}), "");
  EXPECT_EQ(gradcheck([&](In x) { return multiply(x[0], c); }, {randn({2, 3}, 1)}), "");
  EXPECT_EQ(gradcheck([&](In x) { return divide(c, x[0]); }, {uniform({2, 3}, 1, 1, 2)}), "");
  EXPECT_EQ(gradcheck([&](In x) { return divide(x[0], c); }, {randn({2, 3}, 1)}), "");
  EXPECT_EQ(gradcheck([&](In x) { return subtract(c, x[0]); }, {randn({2, 3}, 1)}), "");
}
TEST(Gradcheck, Scale) {
  EXPECT_EQ(gradcheck([](In x) { return scale(x[0], -2.5f); }, {randn({2, 3}, 1)}), "");
}
TEST(Gradcheck, UnaryFunctions) {
  for (auto f : {kernel::Unary::exp, kernel::Unary::tanh, kernel::Unary::square})
    EXPECT_EQ(gradcheck([f](In x) { return unary(x[0], f); }, {randn({2, 7}, 3)}), "")
        << static_cast<int>(f);
  for (auto f :
       {kernel::Unary::log, kernel::Unary::sqrt, kernel::Unary::reciprocal, kernel::Unary::relu})
    EXPECT_EQ(gradcheck([f](In x) { return unary(x[0], f); }, {uniform({2, 7}, 4, 0.6, 2)}), "")
        << static_cast<int>(f);
  EXPECT_EQ(
      gradcheck([](In x) { return unary(x[0], kernel::Unary::relu); }, {uniform({9}, 4, -2, -0.1)}),
      "");
}
TEST(Gradcheck, Gelu) {
  for (auto kind : {kernel::Gelu::exact, kernel::Gelu::tanh})
    EXPECT_EQ(gradcheck([kind](In x) { return gelu(x[0], kind); }, {randn({3, 9}, 5, 2)}), "");
}
TEST(Gradcheck, BiasGelu) {
  for (auto kind : {kernel::Gelu::exact, kernel::Gelu::tanh})
    EXPECT_EQ(gradcheck([kind](In x) { return bias_gelu(x[0], x[1], kind); },
                        {randn({2, 3, 5}, 5), randn({5}, 6)}),
              "");
}
TEST(Gradcheck, Dropout) {
  EXPECT_EQ(gradcheck([](In x) { return dropout(x[0], 0.4f, {7, 1, 3}); }, {randn({4, 9}, 1)}), "");
}
TEST(Gradcheck, ShapeOperations) {
  EXPECT_EQ(gradcheck([](In x) { return reshape(x[0], {3, 2}); }, {randn({2, 3}, 1)}), "");
  EXPECT_EQ(gradcheck([](In x) { return slice(x[0], 1, 3); }, {randn({4, 2}, 1)}), "");
  EXPECT_EQ(
      gradcheck([](In x) { return add(slice(x[0], 0, 2), slice(x[0], 1, 3)); }, {randn({3, 2}, 1)}),
      "");
  EXPECT_EQ(gradcheck([](In x) { return slice(x[0], 0, 3); }, {randn({3, 2}, 1)}), "");
}
TEST(Gradcheck, Reductions) {
  EXPECT_EQ(gradcheck([](In x) { return sum(x[0]); }, {randn({4, 3}, 1)}), "");
  EXPECT_EQ(gradcheck([](In x) { return mean(x[0]); }, {randn({4, 3}, 1)}), "");
}
TEST(Gradcheck, MatmulInEveryStorage) {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      const Shape a = ta ? Shape{3, 2} : Shape{2, 3}, b = tb ? Shape{5, 3} : Shape{3, 5};
      const Shape a3 = ta ? Shape{2, 3, 2} : Shape{2, 2, 3},
                  b3 = tb ? Shape{2, 5, 3} : Shape{2, 3, 5};
      const auto f = [=](In x) { return matmul(x[0], x[1], {ta, tb}); };
      EXPECT_EQ(gradcheck(f, {randn(a, 1), randn(b, 2)}), "") << ta << tb;
      EXPECT_EQ(gradcheck(f, {randn(a3, 1), randn(b3, 2)}), "") << ta << tb;
    }
}
TEST(Gradcheck, LinearWithAndWithoutBias) {
  for (const Shape& x : {Shape{4}, Shape{3, 4}, Shape{2, 3, 4}}) {
    EXPECT_EQ(gradcheck([](In in) { return linear(in[0], in[1], in[2]); },
                        {randn(x, 1), randn({5, 4}, 2), randn({5}, 3)}),
              "");
    EXPECT_EQ(
        gradcheck([](In in) { return linear(in[0], in[1]); }, {randn(x, 1), randn({5, 4}, 2)}), "");
  }
}
TEST(Gradcheck, LinearWithFrozenParts) {
  const Tensor x = randn({3, 4}, 1), w = randn({5, 4}, 2), b = randn({5}, 3);
  EXPECT_EQ(gradcheck([&](In in) { return linear(in[0], w, b); }, {x}), "");
  EXPECT_EQ(gradcheck([&](In in) { return linear(x, in[0], b); }, {w}), "");
  EXPECT_EQ(gradcheck([&](In in) { return linear(x, w, in[0]); }, {b}), "");
}
TEST(Gradcheck, LayerNorm) {
  const Tensor x = randn({2, 3, 7}, 1), gamma = uniform({7}, 2, 0.5, 1.5), beta = randn({7}, 3);
  EXPECT_EQ(gradcheck([](In in) { return layer_norm(in[0], in[1], in[2]); }, {x, gamma, beta}), "");
  EXPECT_EQ(gradcheck([](In in) { return layer_norm(in[0], in[1], {}); }, {x, gamma}), "");
}
TEST(Gradcheck, ResidualLayerNorm) {
  const std::vector<Tensor> in = {randn({4, 7}, 1), randn({4, 7}, 2), uniform({7}, 3, 0.5, 1.5),
                                  randn({7}, 4)};
  EXPECT_EQ(gradcheck(
                [](In x) {
                  const auto [total, out] = residual_layer_norm(x[0], x[1], x[2], x[3]);
                  return add(scale(total, 0.5f), out);
                },
                in),
            "");
  EXPECT_EQ(gradcheck([](In x) { return residual_layer_norm(x[0], x[1], x[2], x[3]).out; }, in),
            "");
  EXPECT_EQ(gradcheck([](In x) { return residual_layer_norm(x[0], x[1], x[2], {}).out; },
                      {in[0], in[1], in[2]}),
            "");
  EXPECT_EQ(gradcheck([&](In x) { return residual_layer_norm(x[0], x[1], in[2], in[3]).sum; },
                      {in[0], in[1]}),
            "");
}
TEST(Gradcheck, BatchNorm) {
  const Tensor gamma = uniform({3}, 2, 0.5, 1.5), beta = randn({3}, 3);
  for (const Tensor& x : {randn({6, 3}, 1), randn({2, 3, 5}, 1), randn({2, 3, 2, 3}, 1)}) {
    EXPECT_EQ(gradcheck([](In in) { return batch_norm(in[0], in[1], in[2]); }, {x, gamma, beta}),
              "");
    EXPECT_EQ(gradcheck([](In in) { return batch_norm(in[0], {}, {}); }, {x}), "");
    EXPECT_EQ(gradcheck([&](In in) { return batch_norm(x, in[0], in[1]); }, {gamma, beta}), "");
    EXPECT_EQ(gradcheck(
                  [](In in) {
                    return fixed_batch_norm(in[0], in[1], in[2], full({3}, 0.3), full({3}, 0.7));
                  },
                  {x, gamma, beta}),
              "");
  }
}
TEST(Gradcheck, GroupNorm) {
  const Tensor x = randn({2, 4, 3}, 1), gamma = uniform({4}, 2, 0.5, 1.5), beta = randn({4}, 3);
  for (int64_t groups : {1, 2, 4})
    EXPECT_EQ(
        gradcheck([&](In in) { return group_norm(in[0], in[1], in[2], groups); }, {x, gamma, beta}),
        "");
  EXPECT_EQ(gradcheck([](In in) { return group_norm(in[0], {}, {}, 2); }, {x}), "");
}
TEST(Gradcheck, Softmax) {
  EXPECT_EQ(gradcheck([](In x) { return softmax(x[0]); }, {randn({3, 6}, 1)}), "");
}
TEST(Gradcheck, SoftmaxCrossEntropy) {
  const Tensor targets = from_values<int32_t>({2, -100, 0, 4});
  EXPECT_EQ(
      gradcheck([&](In x) { return softmax_cross_entropy_sum(x[0], targets); }, {randn({4, 5}, 1)}),
      "");
  const Tensor wide = from_values<int64_t>({2, 1, 0, 4}, {2, 2});
  EXPECT_EQ(gradcheck([&](In x) { return scale(softmax_cross_entropy_sum(x[0], wide, 1), 3); },
                      {randn({2, 2, 5}, 1)}),
            "");
}
TEST(Gradcheck, BceWithLogits) {
  const Tensor targets = from_values<float>({0, 1, 0.25f, 1});
  EXPECT_EQ(gradcheck([&](In x) { return scale(bce_with_logits_sum(x[0], targets), 2); },
                      {randn({4}, 1, 2)}),
            "");
}
TEST(Gradcheck, EmbeddingWithRepeatedIds) {
  const Tensor ids = from_values<int32_t>({3, 0, 3, 1, 3, 1}, {2, 3});
  EXPECT_EQ(gradcheck([&](In x) { return embedding(x[0], ids); }, {randn({4, 5}, 1)}), "");
  EXPECT_EQ(gradcheck(
                [&](In x) {
                  return add(embedding(x[0], ids),
                             linear(randn({2, 3, 5}, 4), matmul(x[0], x[0], {true, false})));
                },
                {randn({4, 5}, 1)}),
            "")
      << "a table used in two ways";
}
}  // namespace
}  // namespace lockstep::ops
