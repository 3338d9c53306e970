// The GPT against PyTorch: activations, loss, all gradients, ten AdamW steps (made by
// tests/golden/make_golden.py).
#include <gtest/gtest.h>

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/no_grad.h"
#include "optim/optimizer.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace lockstep::apps {
namespace {

using lockstep::testing::Golden;
using lockstep::testing::near;

class GoldenGpt : public ::testing::TestWithParam<const char*> {
 protected:
  Golden golden{GetParam()};
};

TEST_P(GoldenGpt, HasTheSameParameters) {
  Gpt gpt(golden.config(), 1);
  std::vector<std::string> ours, theirs;
  for (const auto& p : gpt.parameters()) {
    ours.push_back("param/" + p.name);
    EXPECT_EQ(golden[ours.back()].shape(), p.slot->shape()) << p.name;
  }
  for (const auto& e : golden.file.entries())
    if (e.name.starts_with("param/")) theirs.push_back(e.name);
  EXPECT_EQ(ours, theirs);
}

TEST_P(GoldenGpt, LayersGiveTheSameActivations) {
  const GptConfig c = golden.config();
  layers::Initialiser init(1);
  for (int64_t n = 0; n < c.layers; ++n) {
    const std::string block = fmt::format("blocks.{}.", n), seen = "activation/" + block;
    layers::LayerNorm ln1(init, c.width, {.bias = c.bias}), ln2(init, c.width, {.bias = c.bias});
    layers::CausalSelfAttention attention(init, c.width,
                                          {.heads = static_cast<int>(c.heads), .bias = c.bias});
    layers::Mlp mlp(init, c.width, {.bias = c.bias, .gelu = c.gelu});
    golden.load(ln1, block + "ln1.");
    golden.load(ln2, block + "ln2.");
    golden.load(attention, block + "attention.");
    golden.load(mlp, block + "mlp.");
    const Tensor x =
        golden[n == 0 ? "activation/embedding" : fmt::format("activation/blocks.{}.out", n - 1)];
    EXPECT_TRUE(near(ln1(x), golden[seen + "ln1"], 1e-5));
    EXPECT_TRUE(near(attention(golden[seen + "ln1"]), golden[seen + "attention"], 1e-5));
    const auto middle = ln2(golden[seen + "attention"], x);
    EXPECT_TRUE(near(middle.out, golden[seen + "ln2"], 1e-5));
    EXPECT_TRUE(near(mlp(golden[seen + "ln2"]), golden[seen + "mlp"], 1e-5));
    EXPECT_TRUE(near(ops::add(middle.sum, golden[seen + "mlp"]), golden[seen + "out"], 1e-5));
  }
}

TEST_P(GoldenGpt, GivesTheSameLogits) {
  Gpt gpt(golden.config(), 1);
  golden.load(gpt);
  const autograd::NoGrad off;
  EXPECT_TRUE(near(gpt.logits(golden["ids"]), golden["activation/logits"], 1e-5));
}

TEST_P(GoldenGpt, GivesTheSameLogitsWithFewerBlocks) {
  GptConfig c = golden.config();
  for (int64_t layers = golden.config().layers - 1; layers >= 1; --layers) {
    c.layers = layers;
    Gpt gpt(c, 1);
    golden.load(gpt);
    EXPECT_TRUE(near(gpt.logits(golden["ids"]), golden[fmt::format("truncated/{}", layers)], 1e-5))
        << layers;
  }
}

TEST_P(GoldenGpt, GivesTheSameLossAndGradients) {
  Gpt gpt(golden.config(), 1);
  golden.load(gpt);
  const Tensor loss = gpt.loss_sum(golden["ids"], golden["targets"]);
  const double expected = golden["loss_sum"].item();
  EXPECT_NEAR(loss.item(), expected, 1e-5 * expected);
  autograd::backward(loss);
  for (const auto& p : gpt.parameters())
    EXPECT_TRUE(near(autograd::grad(*p.slot), golden["grad/" + p.name], 1e-5)) << p.name;
}

TEST_P(GoldenGpt, TenAdamWStepsGiveTheSameLosses) {
  Gpt gpt(golden.config(), 1);
  golden.load(gpt);
  const optim::FlatParams flat(gpt);
  const auto adamw = optim::make_optimizer("adamw", flat.all(),
                                           {.lr = golden.number("lr"),
                                            .beta1 = golden.number("beta1"),
                                            .beta2 = golden.number("beta2"),
                                            .eps = golden.number("eps"),
                                            .weight_decay = golden.number("weight_decay")});
  const Tensor ids = golden["ids"], targets = golden["targets"], losses = golden["adamw_losses"];
  int64_t count = 0;  // targets that are not ignored
  for (int32_t t : values<int32_t>(targets)) count += t != ops::kIgnoreIndex;
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const Tensor loss = gpt.loss_sum(ids, targets);
    const double expected = losses.data<float>()[step];
    EXPECT_NEAR(loss.item() / static_cast<double>(count), expected, 1e-5 * expected)
        << "step " << step;
    for (const auto& p : gpt.parameters())
      autograd::leaf_of(*p.slot).landing = autograd::Landing::overwrite;
    autograd::backward(loss);
    adamw->step({.factor = 1.0f / static_cast<float>(count)});
  }
}

INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenGpt, ::testing::ValuesIn(lockstep::testing::kGoldenFiles),
                         [](const auto& file) { return std::string(file.param); });

}  // namespace
}  // namespace lockstep::apps
