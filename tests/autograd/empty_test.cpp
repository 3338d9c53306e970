// A batch of nothing: results are empty or zero, and parameters get a gradient of exactly zero,
// also where it is written straight over what was there.
#include <gtest/gtest.h>

#include <limits>

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/ops.h"
#include "tests/support/tensors.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::Floats;

Tensor leaf(const Shape& shape) {
  Tensor x = full(shape, 0.5);
  autograd::require_grad(x).grad = full(shape, std::numeric_limits<double>::quiet_NaN());
  return x;
}
void expect_zero_gradients(const Tensor& y, const std::vector<Tensor>& leaves) {
  autograd::backward(sum(y));
  for (const Tensor& x : leaves)
    EXPECT_EQ(values(autograd::grad(x)), Floats(x.numel(), 0.0f)) << describe(x);
}

TEST(EmptyBatch, Linear) {
  const Tensor x = leaf({0, 3}), w = leaf({2, 3}), b = leaf({2});
  const Tensor y = linear(x, w, b);
  EXPECT_EQ(y.shape(), (Shape{0, 2}));
  expect_zero_gradients(y, {x, w, b});
}
TEST(EmptyBatch, LinearRelu) {
  const Tensor x = leaf({0, 3}), w = leaf({2, 3}), b = leaf({2});
  const Tensor y = linear_relu(x, w, b);
  EXPECT_EQ(y.shape(), (Shape{0, 2}));
  expect_zero_gradients(y, {x, w, b});
}
TEST(EmptyBatch, LinearWithoutInputs) {
  const Tensor x = leaf({2, 0}), w = leaf({3, 0}), b = leaf({3});
  const Tensor y = linear(x, w, b);
  EXPECT_EQ(values(y), Floats(6, 0.5f));
  autograd::backward(sum(y));
  EXPECT_EQ(values(autograd::grad(b)), Floats(3, 2.0f));
}
TEST(EmptyBatch, LayerNorm) {
  const Tensor x = leaf({0, 3}), gamma = leaf({3}), beta = leaf({3});
  expect_zero_gradients(layer_norm(x, gamma, beta), {x, gamma, beta});
}
TEST(EmptyBatch, ResidualLayerNorm) {
  const Tensor x = leaf({0, 3}), r = leaf({0, 3}), gamma = leaf({3}), beta = leaf({3});
  const auto [total, out] = residual_layer_norm(x, r, gamma, beta);
  expect_zero_gradients(add(total, out), {x, r, gamma, beta});
}
TEST(EmptyBatch, BatchNorm) {
  const Tensor x = leaf({0, 3}), planes = leaf({0, 3, 2, 2}), gamma = leaf({3}), beta = leaf({3});
  expect_zero_gradients(batch_norm(x, gamma, beta), {x, gamma, beta});
  expect_zero_gradients(batch_norm(planes, {}, {}), {planes});
  expect_zero_gradients(batch_norm_relu(x, gamma, beta, batch_moments(x), 1e-5f, x),
                        {x, gamma, beta});
}
TEST(EmptyBatch, GroupNorm) {
  const Tensor x = leaf({0, 4, 2}), gamma = leaf({4}), beta = leaf({4});
  expect_zero_gradients(group_norm(x, gamma, beta, 2), {x, gamma, beta});
}
TEST(EmptyBatch, BiasGelu) {
  const Tensor x = leaf({0, 3}), b = leaf({3});
  expect_zero_gradients(bias_gelu(x, b), {x, b});
}
TEST(EmptyBatch, Broadcasting) {
  const Tensor x = leaf({0, 3}), b = leaf({3}), s = leaf({});
  expect_zero_gradients(multiply(add(x, b), s), {x, b, s});
}
TEST(EmptyBatch, Embedding) {
  const Tensor table = leaf({4, 3});
  const Tensor y = embedding(table, zeros({0, 5}, DType::i32));
  EXPECT_EQ(y.shape(), (Shape{0, 5, 3}));
  expect_zero_gradients(y, {table});
}
TEST(EmptyBatch, CrossEntropy) {
  const Tensor logits = leaf({0, 5});
  const Tensor loss = softmax_cross_entropy_sum(logits, zeros({0}, DType::i32));
  EXPECT_EQ(loss.item(), 0);
  expect_zero_gradients(loss, {logits});
}
TEST(EmptyBatch, Attention) {
  for (const Shape& shape : {Shape{0, 4, 12}, Shape{2, 0, 12}}) {
    const Tensor qkv = leaf(shape);
    expect_zero_gradients(attention(qkv, {.heads = 2}), {qkv});
  }
}
TEST(EmptyBatch, ElementWise) {
  const Tensor x = leaf({0, 3});
  expect_zero_gradients(dropout(softmax(gelu(scale(x, 2))), 0.5f, {1, 1, 0}), {x});
  EXPECT_THROW(mean(x), UsageError);
}

}  // namespace
}  // namespace lockstep::ops
