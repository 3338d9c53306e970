#include "apps/vision/residual_net.h"

#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/no_grad.h"
#include "distributed/comm/launch.h"
#include "distributed/layers/sync_batch_norm.h"
#include "layers/batch_norm.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>

namespace lockstep::apps {
namespace {

using lockstep::testing::Floats;
using lockstep::testing::near;
using lockstep::testing::randn;
using lockstep::testing::uniform;
using Norm = ResidualNetConfig::Norm;

constexpr Norm kNorms[] = {Norm::batch, Norm::group, Norm::none};

ResidualNetConfig tiny(Norm norm) {
  return {.channels = 2, .classes = 3, .width = 4, .blocks = 1, .norm = norm, .groups = 2};
}
Tensor labels_of(int64_t samples, int64_t classes) {
  const Tensor labels = Tensor::empty({samples}, DType::i32);
  for (int64_t i = 0; i < samples; ++i)
    labels.mutable_data<int32_t>()[i] = static_cast<int32_t>(i % classes);
  return labels;
}
double loss_of(const ResidualNet& net, const Tensor& images, const Tensor& labels) {
  const autograd::NoGrad off;
  return net.loss_sum(images, labels).item();
}
Floats gradients_of(ResidualNet& net) {
  Floats all;
  for (const auto& p : net.parameters())
    for (float g : values(autograd::grad(*p.slot))) all.push_back(g);
  return all;
}

TEST(ResidualNet, NamesItsParametersAndBuffers) {
  const auto described = [](Norm norm) {
    ResidualNet net(tiny(norm), 1);
    std::vector<std::string> names;
    for (const auto& p : net.parameters())
      names.push_back(p.name + " " + to_string(p.slot->shape()));
    return names;
  };
  const auto with_norm = described(Norm::batch);
  EXPECT_EQ(described(Norm::group), with_norm);
  ASSERT_EQ(with_norm.size(), 3u * (1 + 2 * 3 + 2) + 2);
  EXPECT_EQ(described(Norm::none).size(), with_norm.size() - 9);
  EXPECT_EQ(
      std::vector(with_norm.begin(), with_norm.begin() + 6),
      (std::vector<std::string>{"stem.conv.weight [4, 2, 3, 3]", "stem.norm.weight [4]",
                                "stem.norm.bias [4]", "blocks.0.first.conv.weight [4, 4, 3, 3]",
                                "blocks.0.first.norm.weight [4]", "blocks.0.first.norm.bias [4]"}));
  EXPECT_EQ(std::vector(with_norm.end() - 5, with_norm.end()),
            (std::vector<std::string>{
                "blocks.2.shortcut.conv.weight [16, 8, 1, 1]", "blocks.2.shortcut.norm.weight [16]",
                "blocks.2.shortcut.norm.bias [16]", "head.weight [3, 16]", "head.bias [3]"}));
  ResidualNet net(tiny(Norm::batch), 1), without(tiny(Norm::none), 1);
  EXPECT_EQ(net.buffers().size(), 3u * 9);
  EXPECT_EQ(net.buffers()[0].name, "stem.norm.running_mean");
  EXPECT_EQ(without.buffers().size(), 0u);
  EXPECT_TRUE(layers::uses_batch_statistics(net));
  EXPECT_FALSE(layers::uses_batch_statistics(without));
}

TEST(ResidualNet, CountsItsParameters) {
  EXPECT_EQ(parameter_count(ResidualNetConfig{}), 272'474);  // ResNet-20, shortcuts of kind B
  for (Norm norm : kNorms) {
    ResidualNet net(tiny(norm), 1);
    EXPECT_EQ(parameter_count(net.config()), layers::parameter_count(net));
  }
}

TEST(ResidualNet, CountsTheOperationsOfAStep) {
  // Stem 2·4·9, two 4·4·9 at 6 x 6; 4·8·9, 8·8·9, 4·8 at 3 x 3; 8·16·9, 16·16·9, 8·16 at 2 x 2.
  const double products = 36.0 * (2 * 144) + 9.0 * (288 + 576 + 32) + 4.0 * (1152 + 2304 + 128);
  EXPECT_DOUBLE_EQ(product_flops(tiny(Norm::batch), 6, 5),
                   5 * (4 * 36.0 * 72 + 6 * (products + 48)));
}

TEST(ResidualNet, HalvesTheSidesTwice) {
  for (Norm norm : kNorms)
    for (int64_t size : {1, 2, 7, 8}) {
      const ResidualNet net(tiny(norm), 1);
      const Tensor logits = net.logits(uniform({4, 2, size, size}, 1, -1, 1));
      EXPECT_EQ(logits.shape(), (Shape{4, 3}));
      for (float v : values(logits)) EXPECT_TRUE(std::isfinite(v));
    }
}

// Of three blocks by the operations one by one.
TEST(ResidualNet, AddsBranchesToTheirShortcuts) {
  ResidualNet net(tiny(Norm::batch), 1);
  std::map<std::string, Tensor> p;
  for (const auto& parameter : net.parameters()) {
    if (parameter.slot->rank() == 1)
      kernel::copy(*parameter.slot, uniform(parameter.slot->shape(), p.size(), -0.5, 1));
    p[parameter.name] = parameter.slot->detach();
  }
  const Tensor images = randn({3, 2, 7, 7}, 5);
  const autograd::NoGrad off;
  const auto relu = [](const Tensor& x) { return ops::unary(x, kernel::Unary::relu); };
  const auto unit = [&](const std::string& name, const Tensor& x, int64_t stride, int64_t padding) {
    const Tensor y = ops::conv2d(x, p.at(name + ".conv.weight"), {},
                                 {.stride = square(stride), .padding = square(padding)});
    return ops::batch_norm(y, p.at(name + ".norm.weight"), p.at(name + ".norm.bias"));
  };
  Tensor x = relu(unit("stem", images, 1, 1));
  for (int block = 0; block < 3; ++block) {
    const std::string name = fmt::format("blocks.{}", block);
    const int64_t stride = block == 0 ? 1 : 2;
    const Tensor branch = unit(name + ".second", relu(unit(name + ".first", x, stride, 1)), 1, 1);
    x = relu(ops::add(branch, block == 0 ? x : unit(name + ".shortcut", x, 2, 0)));
  }
  const Tensor expected =
      ops::linear(ops::global_average_pool(x), p.at("head.weight"), p.at("head.bias"));
  EXPECT_TRUE(near(net.logits(images), expected, 1e-5));
}

TEST(ResidualNet, GradientsAreThoseOfFiniteDifferences) {
  for (Norm norm : kNorms) {
    ResidualNetConfig config = tiny(norm);
    config.width = 2;
    ResidualNet net(config, 3);
    uint64_t seed = 10;
    for (const auto& p : net.parameters()) {  // no zeros, no kinks at 0
      if (p.slot->rank() == 1) kernel::copy(*p.slot, uniform(p.slot->shape(), seed, 0.2, 0.6));
      if (norm == Norm::none && p.slot->rank() == 4)
        kernel::copy(*p.slot, uniform(p.slot->shape(), seed, -0.4, 0.4));
      ++seed;
    }
    const Tensor images = uniform({6, 2, 4, 4}, 1, -1, 1), labels = labels_of(6, 3);
    autograd::backward(net.loss_sum(images, labels));
    // The slope along the gradient, and along directions that know nothing of it.
    const Floats gradient = gradients_of(net);
    for (uint64_t direction = 0; direction < 4; ++direction) {
      const Floats random = values(randn({static_cast<int64_t>(gradient.size())}, 40 + direction));
      const Floats& d = direction == 0 ? gradient : random;
      double size = 0, slope = 0;
      for (size_t i = 0; i < d.size(); ++i)
        size += double{d[i]} * d[i], slope += double{d[i]} * gradient[i];
      const double step = 1e-3 / std::sqrt(size) * std::sqrt(static_cast<double>(d.size()));
      const auto moved = [&](double by) {
        size_t i = 0;
        for (const auto& p : net.parameters())
          for (int64_t k = 0; k < p.slot->numel(); ++k, ++i)
            p.slot->mutable_data<float>()[k] += static_cast<float>(by * d[i]);
      };
      moved(step);
      const double above = loss_of(net, images, labels);
      moved(-2 * step);
      const double below = loss_of(net, images, labels);
      moved(step);
      EXPECT_NEAR((above - below) / (2 * step), slope, 0.02 * std::abs(slope) + 0.01)
          << static_cast<int>(norm) << " " << direction;
    }
  }
}

TEST(ResidualNet, StartsWithAllClassesAboutAsLikely) {
  const Tensor images = randn({32, 3, 16, 16}, 1), labels = labels_of(32, 10);
  for (Norm norm : kNorms) {
    const ResidualNet net({.norm = norm}, 1);
    EXPECT_NEAR(loss_of(net, images, labels) / 32, std::numbers::ln10, 0.05);
  }
}

// One batch by heart, with plain gradient descent.
TEST(ResidualNet, TrainsWithEveryNorm) {
  const Tensor images = randn({16, 2, 8, 8}, 1), labels = labels_of(16, 3);
  for (Norm norm : kNorms) {
    ResidualNet net(tiny(norm), 2);
    const double before = loss_of(net, images, labels);
    for (int step = 0; step < 60; ++step) {
      autograd::backward(net.loss_sum(images, labels));
      for (const auto& p : net.parameters()) {
        const Tensor g = autograd::grad(*p.slot);
        for (int64_t i = 0; i < g.numel(); ++i)
          p.slot->mutable_data<float>()[i] -= 0.01f * g.data<float>()[i];
        kernel::fill(g, 0);
      }
    }
    EXPECT_LT(loss_of(net, images, labels), 0.5 * before) << static_cast<int>(norm);
  }
}

TEST(ResidualNet, RunsWithAnEmptyBatch) {
  for (Norm norm : kNorms) {
    ResidualNet net(tiny(norm), 1);
    const Tensor loss = net.loss_sum(Tensor::empty({0, 2, 8, 8}), labels_of(0, 3));
    EXPECT_EQ(loss.item(), 0);
    autograd::backward(loss);
    for (float g : gradients_of(net)) EXPECT_EQ(g, 0);
  }
}

// Three ranks, one of them without images, joined by SyncBN: one rank with all of them.
TEST(ResidualNet, SplitOverRanksIsTheWholeBatch) {
  const Tensor images = randn({5, 2, 8, 8}, 1), labels = labels_of(5, 3);
  ResidualNet whole(tiny(Norm::batch), 1);
  const Tensor loss = whole.loss_sum(images, labels);
  autograd::backward(loss);
  const Floats expected = gradients_of(whole);
  const int64_t begins[] = {0, 2, 2, 5};
  std::vector<Floats> gradients(3);
  std::vector<double> losses(3);
  distributed::run_ranks(3, [&](distributed::Communicator& comm) {
    const int rank = comm.rank();
    ResidualNet net(tiny(Norm::batch), 1);
    EXPECT_EQ(distributed::sync_batch_norms(net, comm), 9);
    const Tensor mine = net.loss_sum(images.slice(begins[rank], begins[rank + 1]),
                                     labels.slice(begins[rank], begins[rank + 1]));
    autograd::backward(mine);
    losses[static_cast<size_t>(rank)] = mine.item();
    gradients[static_cast<size_t>(rank)] = gradients_of(net);
  });
  EXPECT_NEAR(losses[0] + losses[1] + losses[2], loss.item(), 1e-5);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(gradients[0][i] + gradients[1][i] + gradients[2][i], expected[i], 2e-4) << i;
}

TEST(ResidualNet, AutocastComputesCloseBy) {
  const Tensor images = randn({8, 2, 8, 8}, 1), labels = labels_of(8, 3);
  for (Norm norm : kNorms)
    for (DType dtype : {DType::bf16, DType::f16}) {
      ResidualNet net(tiny(norm), 1);
      const double wide = loss_of(net, images, labels);
      const autograd::Autocast low(dtype);
      EXPECT_EQ(net.logits(images).dtype(), dtype);
      const Tensor loss = net.loss_sum(images, labels);
      EXPECT_EQ(loss.dtype(), DType::f32);
      EXPECT_NEAR(loss.item(), wide, 0.02 * wide);
      autograd::backward(loss);
      for (const auto& p : net.parameters()) EXPECT_EQ(autograd::grad(*p.slot).dtype(), DType::f32);
    }
}

TEST(ResidualNet, ValuesDependOnTheSeedAlone) {
  ResidualNet one({}, 1), same({}, 1), other({}, 2);
  const auto a = one.parameters(), b = same.parameters(), c = other.parameters();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(values(*a[i].slot), values(*b[i].slot));
  EXPECT_NE(values(*a[0].slot), values(*c[0].slot));
}

TEST(ResidualNet, SaysWhatDoesNotFit) {
  const auto with = [](auto change) {
    ResidualNetConfig config = tiny(Norm::group);
    change(config);
    return config;
  };
  EXPECT_THROW(ResidualNet(with([](auto& c) { c.channels = 0; }), 1), UsageError);
  EXPECT_THROW(ResidualNet(with([](auto& c) { c.classes = 0; }), 1), UsageError);
  EXPECT_THROW(ResidualNet(with([](auto& c) { c.width = 0; }), 1), UsageError);
  EXPECT_THROW(ResidualNet(with([](auto& c) { c.blocks = 0; }), 1), UsageError);
  EXPECT_THROW(ResidualNet(with([](auto& c) { c.groups = 3; }), 1), UsageError);
  EXPECT_THROW(parameter_count(with([](auto& c) { c.width = int64_t{1} << 32; })), UsageError);
  const ResidualNet net(tiny(Norm::none), 1);
  EXPECT_THROW(net.logits(Tensor::empty({1, 3, 4, 4})), UsageError);
  EXPECT_THROW(net.logits(Tensor::empty({1, 2, 4, 5})), UsageError);
  EXPECT_THROW(net.logits(Tensor::empty({1, 2, 4})), UsageError);
  EXPECT_THROW(net.loss_sum(uniform({2, 2, 4, 4}, 1, 0, 1), labels_of(1, 3)), UsageError);
}

}  // namespace
}  // namespace lockstep::apps
