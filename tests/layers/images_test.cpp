#include <gtest/gtest.h>

#include "autograd/ops.h"
#include "layers/conv2d.h"
#include "layers/pool.h"
#include "tests/support/tensors.h"

namespace lockstep::layers {
namespace {

using lockstep::testing::Floats;
using lockstep::testing::near;
using lockstep::testing::randn;

TEST(Conv2d, IsTheConvolutionPlusBias) {
  Initialiser init(1);
  const kernel::Convolution options{.stride = square(2), .padding = square(1), .groups = 2};
  Conv2d conv(init, 4, 6, {.window = {3, 5}, .convolution = options});
  const auto parameters = conv.parameters();
  ASSERT_EQ(parameters.size(), 2u);
  EXPECT_EQ(parameters[0].name, "weight");
  EXPECT_TRUE(parameters[0].decay);
  EXPECT_EQ(parameters[1].name, "bias");
  EXPECT_FALSE(parameters[1].decay);
  EXPECT_EQ(conv.weight().shape(), (Shape{6, 2, 3, 5}));
  EXPECT_EQ(values(conv.bias()), Floats(6, 0.0f));
  const Tensor x = randn({2, 4, 7, 8}, 1);
  EXPECT_TRUE(near(conv(x), ops::conv2d(x, conv.weight(), conv.bias(), options), 0));
  EXPECT_THROW(conv(randn({2, 3, 7, 8}, 1)), UsageError);
}

TEST(Conv2d, WithoutBiasAndWhatItRefuses) {
  Initialiser init(1);
  Conv2d conv(init, 3, 4, {.bias = false});
  EXPECT_EQ(conv.parameters().size(), 1u);
  EXPECT_FALSE(conv.bias().defined());
  EXPECT_THROW(Conv2d(init, 0, 4), UsageError);
  EXPECT_THROW(Conv2d(init, 3, 4, {.window = {0, 3}}), UsageError);
  EXPECT_THROW(Conv2d(init, 3, 4, {.convolution = {.groups = 2}}), UsageError);
  EXPECT_THROW(Conv2d(init, 4, 4, {.convolution = {.groups = 0}}), UsageError);
}

// Variance 2 / (inputs of one output): 8 channels of a group of 2, nine elements each.
TEST(Conv2d, StartsWithTheVarianceOfItsFanIn) {
  Initialiser init(3);
  Conv2d conv(init, 16, 256, {.convolution = {.groups = 2}});
  double squares = 0;
  for (float w : values(conv.weight())) squares += double{w} * w;
  const auto n = static_cast<double>(conv.weight().numel());
  EXPECT_NEAR(squares / n * (8 * 9 / 2.0), 1, 0.05);
}

TEST(Pool, LayersAreTheOperations) {
  const Tensor x = randn({2, 3, 6, 7}, 1);
  const kernel::Pooling o{square(3), square(2), square(1)};
  EXPECT_TRUE(near(MaxPool(o)(x), ops::max_pool(x, o), 0));
  EXPECT_TRUE(near(AveragePool(o, kernel::Divisor::padded)(x),
                   ops::average_pool(x, o, kernel::Divisor::padded), 0));
  EXPECT_TRUE(near(GlobalAveragePool()(x), ops::global_average_pool(x), 0));
  EXPECT_EQ(Flatten()(x).shape(), (Shape{2, 126}));
  EXPECT_TRUE(MaxPool(o).parameters().empty());
}

}  // namespace
}  // namespace lockstep::layers
