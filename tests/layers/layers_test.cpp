#include <gtest/gtest.h>

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "layers/attention.h"
#include "layers/dropout.h"
#include "layers/embedding.h"
#include "layers/layer_norm.h"
#include "layers/linear.h"
#include "layers/mlp.h"
#include "tests/support/precision.h"
#include "tests/support/tensors.h"

namespace lockstep::layers {
namespace {

using lockstep::testing::Floats;
using lockstep::testing::near;
using lockstep::testing::randn;

std::vector<std::string> names(Module& module) {
  std::vector<std::string> all;
  for (const Parameter& p : module.parameters()) all.push_back(p.name);
  return all;
}

TEST(Linear, IsTheProductPlusBias) {
  Initialiser init(1);
  Linear linear(init, 4, 3);
  EXPECT_EQ(names(linear), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(values(linear.bias()), Floats(3, 0.0f));
  const Tensor x = randn({2, 5, 4}, 1);
  EXPECT_TRUE(near(linear(x), ops::linear(x, linear.weight(), linear.bias()), 0));
  EXPECT_THROW(linear(randn({2, 5}, 1)), UsageError);
}

TEST(Linear, WithoutBias) {
  Initialiser init(1);
  Linear linear(init, 4, 3, {.bias = false});
  EXPECT_EQ(names(linear), std::vector<std::string>{"weight"});
  EXPECT_THROW(Linear(init, 0, 3), UsageError);
}

TEST(Embedding, GivesRows) {
  Initialiser init(1);
  Embedding table(init, 5, 3);
  const Tensor y = table(from_values<int32_t>({4, 0}, {1, 2}));
  EXPECT_EQ(y.shape(), (Shape{1, 2, 3}));
  EXPECT_TRUE(near(y.reshape({2, 3}).slice(0, 1), table.weight().slice(4, 5), 0));
  EXPECT_TRUE(table.parameters()[0].decay);
}

TEST(LayerNorm, StartsAsPlainNormalisation) {
  Initialiser init(1);
  LayerNorm norm(init, 4);
  const Floats y = values(norm(from_values<float>({1, 2, 3, 4}, {1, 4})));
  const Floats expected = {-1.3416354f, -0.4472118f, 0.4472118f, 1.3416354f};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(y[i], expected[i], 1e-5);
  for (const Parameter& p : norm.parameters()) EXPECT_FALSE(p.decay) << p.name;
  LayerNorm bare(init, 4, {.bias = false});
  EXPECT_EQ(names(bare), std::vector<std::string>{"weight"});
}

TEST(LayerNorm, ResidualFormIsSumThenNorm) {
  Initialiser init(1);
  LayerNorm norm(init, 6);
  const Tensor a = randn({3, 6}, 1), b = randn({3, 6}, 2);
  const auto [sum, out] = norm(a, b);
  EXPECT_TRUE(near(sum, ops::add(a, b), 0));
  EXPECT_TRUE(near(out, norm(ops::add(a, b)), 1e-6));
}

TEST(Mlp, IsLinearGeluLinear) {
  for (bool bias : {true, false})
    for (auto gelu : {kernel::Gelu::exact, kernel::Gelu::tanh}) {
      Initialiser init(1);
      Mlp mlp(init, 4,
              {.bias = bias, .gelu = gelu, .init = normal(0.5), .projection_init = normal(0.5)});
      auto p = mlp.parameters();
      ASSERT_EQ(p.size(), bias ? 4u : 2u);
      EXPECT_EQ(p[0].slot->shape(), (Shape{16, 4}));
      EXPECT_EQ(p.back().name, bias ? "out.bias" : "out.weight");
      if (bias) kernel::copy(*p[1].slot, randn({16}, 5));
      const Tensor x = randn({3, 4}, 1);
      const Tensor hidden =
          ops::gelu(ops::linear(x, *p[0].slot, bias ? *p[1].slot : Tensor()), gelu);
      EXPECT_TRUE(near(mlp(x), ops::linear(hidden, *p[bias ? 2 : 1].slot), 1e-6));
    }
}

TEST(Dropout, IsTheIdentityInEvaluationAndForZero) {
  const Tensor x = randn({4, 8}, 1);
  Dropout dropout(0.5f, 1), none(0, 1);
  EXPECT_TRUE(none(x, {}).is(x));
  EXPECT_NE(values(dropout(x, {.seed = 1})), values(x));
  dropout.set_mode(Module::Mode::evaluate);
  EXPECT_TRUE(dropout(x, {.seed = 1}).is(x));
  EXPECT_THROW(Dropout(1, 0), UsageError);
  EXPECT_THROW(Dropout(-0.1f, 0), UsageError);
  EXPECT_THROW(Dropout(std::nanf(""), 0), UsageError);
}

TEST(Dropout, TwoRanksDropWhatOneWould) {
  const Tensor x = full({6, 64}, 1);
  Dropout dropout(0.5f, 3);
  const Floats whole = values(dropout(x, {.seed = 9, .first_sample = 600}));
  Floats parts = values(dropout(x.slice(0, 3), {.seed = 9, .first_sample = 600}));
  const Floats second = values(dropout(x.slice(3, 6), {.seed = 9, .first_sample = 603}));
  EXPECT_NE(parts, second) << "ranks differ";
  parts.insert(parts.end(), second.begin(), second.end());
  EXPECT_EQ(parts, whole);
}

TEST(ResidualInit, ShrinksWithDepth) {
  EXPECT_DOUBLE_EQ(residual_init(normal(0.02), 8).sd, 0.005);
  EXPECT_THROW(residual_init({}, 8), UsageError);
  EXPECT_THROW(residual_init(normal(0.02), 0), UsageError);
}

TEST(CausalSelfAttention, IsProjectedAttention) {
  Initialiser init(1);
  CausalSelfAttention layer(init, 8,
                            {.heads = 2, .init = normal(0.5), .projection_init = normal(0.5)});
  EXPECT_EQ(names(layer),
            (std::vector<std::string>{"qkv.weight", "qkv.bias", "proj.weight", "proj.bias"}));
  auto p = layer.parameters();
  kernel::copy(*p[1].slot, randn({24}, 7));
  const Tensor x = randn({2, 5, 8}, 1), lengths = from_values<int32_t>({5, 3});
  const Tensor qkv = ops::linear(x, *p[0].slot, *p[1].slot);
  for (const Tensor& l : {Tensor(), lengths}) {
    const Tensor mixed = ops::attention(qkv, {.heads = 2, .causal = true, .lengths = l});
    EXPECT_TRUE(near(layer(x, l), ops::linear(mixed, *p[2].slot, *p[3].slot), 1e-6));
  }
}

TEST(CausalSelfAttention, LengthsCutASequenceShort) {
  Initialiser init(1);
  const CausalSelfAttention layer(
      init, 8, {.heads = 2, .init = normal(0.5), .projection_init = normal(0.5)});
  const Tensor x = randn({1, 5, 8}, 1);
  const Tensor y = layer(x, from_values<int32_t>({3})).reshape({5, 8});
  const Tensor alone = layer(x.reshape({5, 8}).slice(0, 3).reshape({1, 3, 8})).reshape({3, 8});
  EXPECT_TRUE(near(y.slice(0, 3), alone, 1e-6));
  EXPECT_EQ(values(y.slice(3, 5)), Floats(16, 0.0f));
}

TEST(CausalSelfAttention, RefusesHeadsThatDoNotDivide) {
  Initialiser init(1);
  EXPECT_THROW(CausalSelfAttention(init, 8, {.heads = 3}), UsageError);
  EXPECT_THROW(CausalSelfAttention(init, 8, {.heads = 0}), UsageError);
}

// A transformer block whose parameters are narrow runs in their dtype, near what f32 gives.
TEST(Layers, RunInTheDtypeOfTheirParameters) {
  struct Block : Module {
    explicit Block(Initialiser& init)
        : wte(init, 9, 16),
          norm(init, 16),
          attention(init, 16, {.heads = 2, .init = normal(0.3)}),
          after(init, 16),
          mlp(init, 16, {.init = normal(0.3)}) {
      add_child("wte", wte);
      add_child("norm", norm);
      add_child("attention", attention);
      add_child("after", after);
      add_child("mlp", mlp);
    }
    Tensor operator()(const Tensor& ids) const {
      const Tensor x = wte(ids);
      const auto [sum, out] = after(attention(norm(x)), x);
      return ops::add(sum, mlp(out));
    }
    Embedding wte;
    LayerNorm norm;
    CausalSelfAttention attention;
    LayerNorm after;
    Mlp mlp;
  };
  const Tensor ids = from_values<int32_t>({4, 0, 8, 1, 1, 3}, {2, 3});
  for (DType dtype : test::kNarrow) {
    Initialiser first(1), second(1);
    Block low(first), wide(second);
    const auto narrow = low.parameters(), exact = wide.parameters();
    for (size_t i = 0; i < narrow.size(); ++i) {
      *narrow[i].slot = test::in_dtype(*narrow[i].slot, dtype);
      autograd::require_grad(*narrow[i].slot);
      kernel::cast(*exact[i].slot, *narrow[i].slot);
    }
    const Tensor y = low(ids), expected = wide(ids);
    EXPECT_EQ(y.dtype(), dtype);
    const double rounding = dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
    EXPECT_TRUE(near(test::in_dtype(y, DType::f32), expected, 4 * rounding));
    autograd::backward(ops::sum(y));
    autograd::backward(ops::sum(expected));
    for (size_t i = 0; i < narrow.size(); ++i) {
      const Tensor g = autograd::grad(*narrow[i].slot);
      EXPECT_EQ(g.dtype(), dtype);
      EXPECT_TRUE(near(test::in_dtype(g, DType::f32), autograd::grad(*exact[i].slot), 8 * rounding))
          << narrow[i].name;
    }
  }
}

}  // namespace
}  // namespace lockstep::layers
