// Each fused operation against a plain composition of simple ones: values and all gradients.
#include <gtest/gtest.h>

#include "autograd/ops.h"
#include "tests/support/gradients.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::expect_same_gradients;
using lockstep::testing::randn;
using lockstep::testing::uniform;
using In = const std::vector<Tensor>&;

// The mean of each row in every place of it: x · (1/C everywhere).
Tensor row_means(const Tensor& x) {
  return matmul(x, full({x.size(1), x.size(1)}, 1.0 / static_cast<double>(x.size(1))));
}
Tensor composed_layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta) {
  const Tensor centred = subtract(x, row_means(x));
  const Tensor variance = row_means(unary(centred, kernel::Unary::square));
  const Tensor rstd =
      unary(unary(add(variance, full({}, 1e-5)), kernel::Unary::sqrt), kernel::Unary::reciprocal);
  const Tensor y = multiply(multiply(centred, rstd), gamma);
  return beta.defined() ? add(y, beta) : y;
}
Tensor composed_softmax(const Tensor& x) {
  const Tensor e = unary(x, kernel::Unary::exp);
  return divide(e, matmul(e, full({x.size(1), x.size(1)}, 1)));
}

TEST(Fused, BiasGeluIsAddThenGelu) {
  for (auto kind : {kernel::Gelu::exact, kernel::Gelu::tanh})
    expect_same_gradients([=](In x) { return bias_gelu(x[0], x[1], kind); },
                          [=](In x) { return gelu(add(x[0], x[1]), kind); },
                          {randn({37, 19}, 1), randn({19}, 2)});
}

TEST(Fused, TanhGeluIsItsFormula) {
  expect_same_gradients(
      [](In x) { return gelu(x[0], kernel::Gelu::tanh); },
      [](In x) {
        const Tensor cube = multiply(x[0], unary(x[0], kernel::Unary::square));
        const Tensor inner = scale(add(x[0], scale(cube, 0.044715f)), 0.7978845608f);
        return scale(multiply(x[0], add(unary(inner, kernel::Unary::tanh), full({}, 1))), 0.5f);
      },
      {randn({4, 33}, 1, 2)}, 1e-5);
}

TEST(Fused, LinearIsMatmulThenAdd) {
  expect_same_gradients([](In x) { return linear(x[0], x[1], x[2]); },
                        [](In x) { return add(matmul(x[0], x[1], {.b = true}), x[2]); },
                        {randn({11, 7}, 1), randn({5, 7}, 2), randn({5}, 3)});
}

TEST(Fused, LinearReluIsLinearThenRelu) {
  expect_same_gradients([](In x) { return linear_relu(x[0], x[1], x[2]); },
                        [](In x) { return unary(linear(x[0], x[1], x[2]), kernel::Unary::relu); },
                        {randn({3, 70, 7}, 1), randn({37, 7}, 2), randn({37}, 3)});
  expect_same_gradients([](In x) { return linear_relu(x[0], x[1]); },
                        [](In x) { return unary(linear(x[0], x[1]), kernel::Unary::relu); },
                        {randn({11, 7}, 1), randn({5, 7}, 2)});
}

TEST(Fused, LayerNormIsItsFormula) {
  const std::vector<Tensor> in = {randn({9, 24}, 1), uniform({24}, 2, 0.5, 1.5), randn({24}, 3)};
  expect_same_gradients([](In x) { return layer_norm(x[0], x[1], x[2]); },
                        [](In x) { return composed_layer_norm(x[0], x[1], x[2]); }, in, 1e-5);
  expect_same_gradients([](In x) { return layer_norm(x[0], x[1], {}); },
                        [](In x) { return composed_layer_norm(x[0], x[1], {}); }, {in[0], in[1]},
                        1e-5);
}

TEST(Fused, ResidualLayerNormIsAddThenLayerNorm) {
  const std::vector<Tensor> in = {randn({9, 24}, 1), randn({9, 24}, 4), uniform({24}, 2, 0.5, 1.5),
                                  randn({24}, 3)};
  expect_same_gradients(
      [](In x) {
        const auto [total, out] = residual_layer_norm(x[0], x[1], x[2], x[3]);
        return add(total, out);  // both outputs used, as in a transformer
      },
      [](In x) {
        const Tensor total = add(x[0], x[1]);
        return add(total, layer_norm(total, x[2], x[3]));
      },
      in);
}

// Of [N, C]: the means of columns are those of the rows of ones / N times x.
Tensor composed_batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta) {
  const int64_t n = x.size(0);
  const Tensor mean = full({n, n}, 1.0 / static_cast<double>(n));
  const Tensor centred = subtract(x, matmul(mean, x));
  const Tensor variance = matmul(mean, unary(centred, kernel::Unary::square));
  const Tensor deviation = unary(add(variance, full({}, 1e-5)), kernel::Unary::sqrt);
  return add(multiply(divide(centred, deviation), gamma), beta);
}
TEST(Fused, BatchNormIsItsFormula) {
  expect_same_gradients([](In x) { return batch_norm(x[0], x[1], x[2]); },
                        [](In x) { return composed_batch_norm(x[0], x[1], x[2]); },
                        {randn({9, 24}, 1), uniform({24}, 2, 0.5, 1.5), randn({24}, 3)}, 1e-5);
}
TEST(Fused, BatchNormReluIsItsParts) {
  const auto relu = [](const Tensor& x) { return unary(x, kernel::Unary::relu); };
  const Tensor mean = randn({6}, 8), variance = uniform({6}, 9, 0.5, 1.5);
  for (const Shape& shape : {Shape{9, 6}, Shape{3, 6, 4, 5}}) {
    const std::vector<Tensor> in = {randn(shape, 1), uniform({6}, 2, 0.5, 1.5), randn({6}, 3)};
    std::vector<Tensor> with_addend = in;
    with_addend.push_back(randn(shape, 4));
    expect_same_gradients(
        [](In x) { return batch_norm_relu(x[0], x[1], x[2], batch_moments(x[0]), 1e-5f); },
        [&](In x) { return relu(batch_norm(x[0], x[1], x[2])); }, in);
    expect_same_gradients(
        [](In x) { return batch_norm_relu(x[0], x[1], x[2], batch_moments(x[0]), 1e-5f, x[3]); },
        [&](In x) { return relu(add(batch_norm(x[0], x[1], x[2]), x[3])); }, with_addend);
    expect_same_gradients(
        [&](In x) { return fixed_batch_norm_relu(x[0], x[1], x[2], mean, variance); },
        [&](In x) { return relu(fixed_batch_norm(x[0], x[1], x[2], mean, variance)); }, in);
    expect_same_gradients(
        [&](In x) { return fixed_batch_norm_relu(x[0], x[1], x[2], mean, variance, 1e-5f, x[3]); },
        [&](In x) { return relu(add(fixed_batch_norm(x[0], x[1], x[2], mean, variance), x[3])); },
        with_addend);
    // Constants, no weights, and an addend that comes twice.
    expect_same_gradients(
        [&](In x) { return fixed_batch_norm_relu(in[0], {}, {}, mean, variance, 1e-5f, x[0]); },
        [&](In x) { return relu(add(fixed_batch_norm(in[0], {}, {}, mean, variance), x[0])); },
        {in[0]});
    expect_same_gradients(
        [](In x) { return batch_norm_relu(x[0], {}, {}, batch_moments(x[0]), 1e-5f, x[0]); },
        [&](In x) { return relu(add(batch_norm(x[0], {}, {}), x[0])); }, {in[0]});
    expect_same_gradients(
        [&](In x) { return batch_norm_relu(in[0], x[0], x[1], batch_moments(in[0]), 1e-5f); },
        [&](In x) { return relu(batch_norm(in[0], x[0], x[1])); }, {in[1], in[2]});
  }
  EXPECT_THROW(fixed_batch_norm_relu(randn({2, 6}, 1), {}, {}, mean, variance, 1e-5f, mean),
               UsageError);
}
TEST(Fused, GroupNormOfOneGroupIsLayerNorm) {
  expect_same_gradients([](In x) { return group_norm(x[0], x[1], x[2], 1); },
                        [](In x) { return layer_norm(x[0], x[1], x[2]); },
                        {randn({9, 24}, 1), uniform({24}, 2, 0.5, 1.5), randn({24}, 3)}, 1e-5);
}

TEST(Fused, SoftmaxIsItsFormula) {
  expect_same_gradients([](In x) { return softmax(x[0]); },
                        [](In x) { return composed_softmax(x[0]); }, {randn({7, 13}, 1)});
}

TEST(Fused, CrossEntropyIsMinusTheLogOfTheSoftmax) {
  const Tensor targets = from_values<int32_t>({3, 0, -100, 12, 7});
  lockstep::testing::Floats onehot(5 * 13, 0.0f);
  for (int row : {0, 1, 3, 4}) onehot[row * 13 + targets.data<int32_t>()[row]] = -1;
  const Tensor pick = from_values(onehot, {5, 13});
  expect_same_gradients(
      [&](In x) { return softmax_cross_entropy_sum(x[0], targets); },
      [&](In x) { return sum(multiply(pick, unary(composed_softmax(x[0]), kernel::Unary::log))); },
      {randn({5, 13}, 1, 2)});
}

TEST(Fused, BceIsItsFormula) {
  const Tensor t = from_values<float>({0, 1, 0.25f, 1, 0, 0.5f}), one = full({}, 1);
  expect_same_gradients(
      [&](In x) { return bce_with_logits_sum(x[0], t); },
      [&](In x) {
        const Tensor p =
            unary(add(one, unary(scale(x[0], -1), kernel::Unary::exp)), kernel::Unary::reciprocal);
        const Tensor log_p = unary(p, kernel::Unary::log),
                     log_q = unary(subtract(one, p), kernel::Unary::log);
        return scale(sum(add(multiply(t, log_p), multiply(subtract(one, t), log_q))), -1);
      },
      {randn({6}, 1)});
}

}  // namespace
}  // namespace lockstep::ops
