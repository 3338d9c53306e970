// The fused attention: gradient check, oracle, masked rows.
#include <gtest/gtest.h>

#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "tests/support/gradients.h"

namespace lockstep::ops {
namespace {

using autograd::backward;
using autograd::grad;
using autograd::gradcheck;
using lockstep::testing::expect_same_gradients;
using lockstep::testing::Floats;
using lockstep::testing::randn;
using In = const std::vector<Tensor>&;

TEST(Gradcheck, Attention) {
  const Tensor qkv = randn({2, 5, 3 * 8}, 1);
  for (int heads : {1, 2, 4})
    for (bool causal : {true, false}) {
      EXPECT_EQ(gradcheck([=](In x) { return attention(x[0], {.heads = heads, .causal = causal}); },
                          {qkv}),
                "")
          << heads << causal;
      const Tensor lengths = from_values<int32_t>({3, 0});
      EXPECT_EQ(gradcheck(
                    [=](In x) {
                      return attention(x[0],
                                       {.heads = heads, .causal = causal, .lengths = lengths});
                    },
                    {qkv}),
                "")
          << heads << causal << " lengths";
    }
}

// Columns [begin, begin + count) of a matrix, and their way back, as products with zeros and ones.
Tensor selection(int64_t rows, int64_t begin, int64_t count) {
  Floats s(rows * count, 0.0f);
  for (int64_t i = 0; i < count; ++i) s[(begin + i) * count + i] = 1;
  return from_values(s, {rows, count});
}
Tensor composed_attention(const Tensor& qkv, int heads, bool causal,
                          const std::vector<int32_t>& lengths) {
  const int64_t batch = qkv.size(0), time = qkv.size(1), width = qkv.size(2) / 3, d = width / heads;
  Tensor all = zeros({batch, time, width});
  for (int64_t b = 0; b < batch; ++b) {
    const Tensor x = reshape(slice(qkv, b, b + 1), {time, 3 * width});
    const int64_t length = lengths.empty() ? time : lengths[b];
    Floats masks(time * time, 0.0f), live(time, 0.0f);
    for (int64_t i = 0; i < time; ++i)
      for (int64_t j = 0; j < time; ++j)
        if ((causal && j > i) || j >= length) masks[i * time + j] = -1e30f;
    for (int64_t i = 0; i < length; ++i) live[i] = 1;
    Tensor out = zeros({time, width});
    for (int h = 0; h < heads; ++h) {
      const Tensor q = matmul(x, selection(3 * width, h * d, d)),
                   k = matmul(x, selection(3 * width, width + h * d, d)),
                   v = matmul(x, selection(3 * width, 2 * width + h * d, d));
      const Tensor scores =
          scale(matmul(q, k, {.b = true}), static_cast<float>(1 / std::sqrt(double(d))));
      const Tensor p = softmax(add(scores, from_values(masks, {time, time})));
      out = add(out, matmul(matmul(p, v), selection(width, h * d, d), {.b = true}));
    }
    out = multiply(out, from_values(live, {time, 1}));
    Floats here(batch, 0.0f);
    here[b] = 1;
    all = add(all, multiply(reshape(out, {1, time, width}), from_values(here, {batch, 1, 1})));
  }
  return all;
}

TEST(Fused, AttentionIsSoftmaxOfScoresTimesValues) {
  const Tensor qkv = randn({3, 11, 3 * 12}, 1);
  const std::vector<int32_t> lengths = {11, 4, 1};
  for (int heads : {1, 2, 3})
    for (bool causal : {true, false}) {
      expect_same_gradients(
          [=](In x) { return attention(x[0], {.heads = heads, .causal = causal}); },
          [=](In x) { return composed_attention(x[0], heads, causal, {}); }, {qkv}, 5e-6);
      expect_same_gradients(
          [=](In x) {
            return attention(x[0],
                             {.heads = heads, .causal = causal, .lengths = from_values(lengths)});
          },
          [=](In x) { return composed_attention(x[0], heads, causal, lengths); }, {qkv}, 5e-6);
    }
}

Tensor leaf(const Floats& v, const Shape& shape) {
  Tensor x = from_values(v, shape);
  autograd::require_grad(x);
  return x;
}
bool finite(const Tensor& x) {
  const Floats v = values(x);
  return std::all_of(v.begin(), v.end(), [](float f) { return std::isfinite(f); });
}

TEST(KnownFaults, O29_FullyMaskedAttentionRow) {
  // One head of width 1; keys 0 and 1 are seen by queries 0 and 1 with equal scores, query 2 sees
  // none. Rows of qkv: q, k, v.
  const Tensor qkv = leaf({0, 0, 1, 0, 0, 2, 0, 0, 7}, {1, 3, 3});
  const Tensor lengths = from_values<int32_t>({2});
  const Tensor y = attention(qkv, {.heads = 1, .causal = false, .lengths = lengths});
  EXPECT_EQ(values(y), (Floats{1.5f, 1.5f, 0}));
  backward(sum(multiply(y, from_values<float>({1, 0, 0}, {1, 3, 1}))));
  EXPECT_TRUE(finite(grad(qkv)));
  const Floats d = values(grad(qkv));
  EXPECT_EQ((Floats{d[2], d[5], d[8]}), (Floats{0.5f, 0.5f, 0})) << "dV";
}
TEST(KnownFaults, O29_NothingComesFromAMaskedRow) {
  const Tensor qkv = leaf(values(randn({2, 4, 12}, 1)), {2, 4, 12});
  const Tensor lengths = from_values<int32_t>({2, 0});
  for (bool causal : {false, true}) {
    const Tensor y = attention(qkv, {.heads = 2, .causal = causal, .lengths = lengths});
    const Floats out = values(y);
    for (int i = 2 * 4; i < 8 * 4; ++i) EXPECT_EQ(out[i], 0) << i;
    autograd::leaf_of(qkv).landing = autograd::Landing::overwrite;
    backward(y, full(y.shape(), 1));
    const Floats d = values(grad(qkv));
    EXPECT_TRUE(finite(grad(qkv)));
    for (int i = 2 * 12; i < 8 * 12; ++i) EXPECT_EQ(d[i], 0) << i;
  }
}

}  // namespace
}  // namespace lockstep::ops
