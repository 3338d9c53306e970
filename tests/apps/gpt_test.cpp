#include "apps/transformer/gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/no_grad.h"
#include "autograd/node.h"
#include "core/parallel.h"
#include "tests/support/tensors.h"

namespace lockstep::apps {
namespace {

using lockstep::testing::Floats;
using lockstep::testing::near;

constexpr GptConfig kTiny{.vocab = 11, .layers = 2, .heads = 2, .width = 8, .context = 6};

Tensor tokens(const Shape& shape, uint64_t seed, int64_t vocab = 11) {
  const Random random(seed, RandomStream::tests);
  std::vector<int32_t> ids(shape.numel());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(random.below(vocab, i));
  return from_values(ids, shape);
}

TEST(Gpt, NamesItsParameters) {
  Gpt gpt(kTiny, 1);
  std::vector<std::string> names;
  for (const auto& p : gpt.parameters()) names.push_back(p.name);
  const std::vector<std::string> expected = {"wte.weight",
                                             "wpe.weight",
                                             "blocks.0.ln1.weight",
                                             "blocks.0.ln1.bias",
                                             "blocks.0.attention.qkv.weight",
                                             "blocks.0.attention.qkv.bias",
                                             "blocks.0.attention.proj.weight",
                                             "blocks.0.attention.proj.bias",
                                             "blocks.0.ln2.weight",
                                             "blocks.0.ln2.bias",
                                             "blocks.0.mlp.fc.weight",
                                             "blocks.0.mlp.fc.bias",
                                             "blocks.0.mlp.out.weight",
                                             "blocks.0.mlp.out.bias",
                                             "blocks.1.ln1.weight",
                                             "blocks.1.ln1.bias",
                                             "blocks.1.attention.qkv.weight",
                                             "blocks.1.attention.qkv.bias",
                                             "blocks.1.attention.proj.weight",
                                             "blocks.1.attention.proj.bias",
                                             "blocks.1.ln2.weight",
                                             "blocks.1.ln2.bias",
                                             "blocks.1.mlp.fc.weight",
                                             "blocks.1.mlp.fc.bias",
                                             "blocks.1.mlp.out.weight",
                                             "blocks.1.mlp.out.bias",
                                             "ln.weight",
                                             "ln.bias"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(gpt.parameters()[0].aliases, std::vector<std::string>{"lm_head.weight"});
}

TEST(Gpt, CountsItsParameters) {
  Gpt with(kTiny, 1);
  const int64_t block = 2 * 8 + (24 * 8 + 24) + (8 * 8 + 8) + 2 * 8 + (32 * 8 + 32) + (8 * 32 + 8);
  EXPECT_EQ(layers::parameter_count(with), 11 * 8 + 6 * 8 + 2 * block + 2 * 8);
  GptConfig c = kTiny;
  c.bias = false;
  Gpt without(c, 1);
  EXPECT_EQ(layers::parameter_count(without),
            11 * 8 + 6 * 8 + 2 * (8 + 24 * 8 + 64 + 8 + 256 + 256) + 8);
}

TEST(Gpt, DecaysMatricesOnly) {
  Gpt gpt(kTiny, 1);
  for (const auto& p : gpt.parameters()) EXPECT_EQ(p.decay, p.slot->rank() == 2) << p.name;
}

TEST(Gpt, InitialWeightsFollowGpt2) {
  GptConfig c{.vocab = 256, .layers = 2, .heads = 4, .width = 64, .context = 32};
  Gpt gpt(c, 1);
  for (const auto& p : gpt.parameters()) {
    const Floats v = values(*p.slot);
    if (p.slot->rank() == 1) {
      for (float f : v) EXPECT_EQ(f, p.name.ends_with("weight") ? 1 : 0) << p.name;
      continue;
    }
    double square = 0;
    for (float f : v) square += double{f} * f / double(v.size());
    const bool residual = p.name.ends_with("proj.weight") || p.name.ends_with("out.weight");
    const double sd = residual ? 0.02 / std::sqrt(4.0) : 0.02;
    EXPECT_NEAR(std::sqrt(square), sd, 5 * sd / std::sqrt(2.0 * double(v.size()))) << p.name;
  }
}

TEST(Gpt, SameSeedSameWeightsOtherSeedOtherWeights) {
  Gpt a(kTiny, 5), b(kTiny, 5), c(kTiny, 6);
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    EXPECT_EQ(values(*a.parameters()[i].slot), values(*b.parameters()[i].slot));
    if (a.parameters()[i].slot->rank() == 2) {
      EXPECT_NE(values(*a.parameters()[i].slot), values(*c.parameters()[i].slot));
    }
  }
}

TEST(Gpt, StartsNearUniform) {
  const Gpt gpt(kTiny, 1);
  const autograd::NoGrad off;
  const double loss = gpt.loss_sum(tokens({4, 6}, 1), tokens({4, 6}, 2)).item() / 24;
  EXPECT_NEAR(loss, std::log(11.0), 0.05);
}

TEST(Gpt, SeesNoFuture) {
  const Gpt gpt(kTiny, 1);
  const autograd::NoGrad off;
  const Tensor a = from_values<int32_t>({1, 2, 3, 4, 5, 6}, {1, 6}),
               b = from_values<int32_t>({1, 2, 3, 9, 0, 7}, {1, 6});
  const Tensor x = gpt.logits(a).reshape({6, 11}), y = gpt.logits(b).reshape({6, 11});
  EXPECT_EQ(values(x.slice(0, 3)), values(y.slice(0, 3)));
  for (int t = 3; t < 6; ++t) EXPECT_NE(values(x.slice(t, t + 1)), values(y.slice(t, t + 1)));
}

TEST(Gpt, AShorterPromptGivesTheSameLogits) {
  const Gpt gpt(kTiny, 1);
  const autograd::NoGrad off;
  const Tensor whole = gpt.logits(tokens({1, 6}, 3)).reshape({6, 11});
  const Tensor part = gpt.logits(tokens({1, 4}, 3)).reshape({4, 11});
  EXPECT_TRUE(near(part, whole.slice(0, 4), 1e-5));
}

TEST(Gpt, GradientsOfAPaddedTargetAreThoseWithoutIt) {
  Gpt gpt(kTiny, 1);
  const Tensor ids = tokens({2, 6}, 1);
  const Tensor targets = tokens({2, 6}, 2);
  for (int i = 6; i < 12; ++i)
    targets.mutable_data<int32_t>()[i] = static_cast<int32_t>(ops::kIgnoreIndex);
  autograd::backward(gpt.loss_sum(ids, targets));
  std::vector<Floats> padded;
  for (const auto& p : gpt.parameters()) {
    padded.push_back(values(autograd::grad(*p.slot)));
    autograd::leaf_of(*p.slot).landing = autograd::Landing::overwrite;
  }
  autograd::backward(gpt.loss_sum(ids.slice(0, 1), targets.slice(0, 1)));
  for (size_t i = 0; i < padded.size(); ++i) {
    const auto p = gpt.parameters()[i];
    EXPECT_TRUE(near(autograd::grad(*p.slot), from_values(padded[i], p.slot->shape()), 1e-5, 1e-6))
        << p.name;
  }
}

TEST(Gpt, EveryParameterIsReadyOnceAndTheTiedOneLast) {
  Gpt gpt(kTiny, 1);
  std::vector<std::string> ready;
  for (const auto& p : gpt.parameters())
    autograd::leaf_of(*p.slot).on_ready = [&ready, name = p.name] { ready.push_back(name); };
  autograd::backward(gpt.loss_sum(tokens({2, 6}, 1), tokens({2, 6}, 2)));
  EXPECT_EQ(ready.size(), gpt.parameters().size());
  EXPECT_EQ(ready.front().substr(0, 3), "ln.");
  EXPECT_EQ(ready.back(), "wte.weight");
}

TEST(Gpt, DropoutActsInTrainingOnlyAndBySample) {
  GptConfig c = kTiny;
  c.dropout = 0.3f;
  Gpt gpt(c, 1);
  const autograd::NoGrad off;
  const Tensor ids = tokens({4, 6}, 1);
  const layers::SampleKey key{.seed = 3, .first_sample = 40};
  const Tensor whole = gpt.logits(ids, key);
  EXPECT_EQ(values(gpt.logits(ids, key)), values(whole));
  EXPECT_NE(values(gpt.logits(ids, {.seed = 3, .first_sample = 44})), values(whole));
  const Tensor half = gpt.logits(ids.slice(2, 4), {.seed = 3, .first_sample = 42});
  EXPECT_TRUE(near(half, whole.slice(2, 4), 1e-5)) << "any split of a batch drops the same";
  gpt.set_mode(layers::Module::Mode::evaluate);
  const Gpt plain(kTiny, 1);
  EXPECT_EQ(values(gpt.logits(ids, key)), values(plain.logits(ids)));
}

TEST(Gpt, NothingStaysBehindAStep) {
  Gpt gpt(kTiny, 1);
  const int64_t nodes = autograd::live_nodes();
  for (int i = 0; i < 3; ++i)
    autograd::backward(gpt.loss_sum(tokens({2, 6}, 1), tokens({2, 6}, 2)));
  EXPECT_EQ(autograd::live_nodes(), nodes);
  const int64_t calls = host_allocator().stats().system_calls;
  for (int i = 0; i < 3; ++i)
    autograd::backward(gpt.loss_sum(tokens({2, 6}, 1), tokens({2, 6}, 2)));
  EXPECT_EQ(host_allocator().stats().system_calls, calls)
      << "a warm step asks the system for nothing";
}

TEST(Gpt, LearnsASequenceByHeart) {
  Gpt gpt(kTiny, 1);
  const Tensor ids = from_values<int32_t>({1, 2, 3, 4, 5, 6}, {1, 6}),
               targets = from_values<int32_t>({2, 3, 4, 5, 6, 7}, {1, 6});
  double loss = 0;
  for (int step = 0; step < 150; ++step) {
    const Tensor y = gpt.loss_sum(ids, targets);
    loss = y.item() / 6;
    autograd::backward(y);
    for (const auto& p : gpt.parameters()) {
      kernel::add_scaled(*p.slot, autograd::grad(*p.slot), -0.05f);
      autograd::leaf_of(*p.slot).landing = autograd::Landing::overwrite;
    }
  }
  EXPECT_LT(loss, 0.05);
}

TEST(Gpt, FourThreadsTrainFourModelsAlike) {
  std::vector<Floats> results(4);
  const auto train = [&](int rank) {
    const ThreadBudget one(1);
    Gpt gpt(kTiny, 1);
    for (int step = 0; step < 5; ++step) {
      autograd::backward(gpt.loss_sum(tokens({2, 6}, step), tokens({2, 6}, step + 1)));
      for (const auto& p : gpt.parameters()) {
        kernel::add_scaled(*p.slot, autograd::grad(*p.slot), -0.05f);
        autograd::leaf_of(*p.slot).landing = autograd::Landing::overwrite;
      }
    }
    for (const auto& p : gpt.parameters())
      for (float v : values(*p.slot)) results[rank].push_back(v);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) threads.emplace_back(train, rank);
  for (auto& t : threads) t.join();
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(results[rank], results[0]);
}

TEST(Gpt, RefusesWhatDoesNotFit) {
  const auto with = [](auto change) {
    GptConfig c = kTiny;
    change(c);
    return Gpt(c, 1).config();
  };
  EXPECT_THROW(with([](GptConfig& c) { c.heads = 3; }), UsageError);
  EXPECT_THROW(with([](GptConfig& c) { c.heads = 0; }), UsageError);
  EXPECT_THROW(with([](GptConfig& c) { c.layers = 0; }), UsageError);
  EXPECT_THROW(with([](GptConfig& c) { c.vocab = 0; }), UsageError);
  EXPECT_THROW(with([](GptConfig& c) { c.width = -8; }), UsageError);
  EXPECT_THROW(with([](GptConfig& c) { c.context = 0; }), UsageError);
  EXPECT_THROW(with([](GptConfig& c) { c.dropout = 1; }), UsageError);
  const Gpt gpt(kTiny, 1);
  EXPECT_THROW(gpt.logits(tokens({1, 7}, 1)), UsageError) << "longer than the context";
  EXPECT_THROW(gpt.logits(tokens({6}, 1)), UsageError);
  EXPECT_THROW(gpt.logits(from_values<int32_t>({11}, {1, 1})), UsageError)
      << "not in the vocabulary";
  EXPECT_THROW(gpt.loss_sum(tokens({1, 6}, 1), tokens({1, 5}, 1)), UsageError);
  EXPECT_THROW(gpt.loss_sum(tokens({1, 6}, 1), full({1, 6}, 12, DType::i32)), UsageError);
}

}  // namespace
}  // namespace lockstep::apps
