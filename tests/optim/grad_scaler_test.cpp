#include "optim/grad_scaler.h"

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/ops.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::optim {
namespace {

TEST(GradScaler, DividesByThePowerOfTwoAboveTheNominalWeight) {
  EXPECT_EQ(GradScaler().scale(), 1);
  EXPECT_EQ(GradScaler(1, 768).scale(), 1.0 / 1024);
  EXPECT_EQ(GradScaler(1, 1024).scale(), 1.0 / 1024);
  EXPECT_EQ(GradScaler(65536, 1025).scale(), 32);
  EXPECT_EQ(GradScaler(65536, 1025).loss_scale(), 65536);
  EXPECT_EQ(GradScaler(1, 0.3).scale(), 2);
  EXPECT_EQ(GradScaler(1, 768).nominal_weight(), 768);
}

// Every gradient is exactly scale times what it would be, bit for bit.
TEST(GradScaler, ScalesGradientsExactly) {
  const auto gradient = [](const GradScaler& scaler) {
    const Tensor w = from_values<float>({0.1f, -0.7f, 3.3f}, {1, 3});
    autograd::require_grad(w);
    const Tensor x = from_values<float>({1.1f, 2.3f, -0.9f}, {1, 3});
    autograd::backward(scaler.scale(ops::sum(ops::gelu(ops::multiply(w, x)))));
    return values(autograd::grad(w));
  };
  const std::vector<float> plain = gradient(GradScaler());
  for (const auto& [scale, weight] : {std::pair{1024.0, 1.0}, {1.0, 5000.0}}) {
    const GradScaler scaler(scale, weight);
    const std::vector<float> scaled = gradient(scaler);
    for (size_t i = 0; i < plain.size(); ++i)
      EXPECT_EQ(scaled[i], plain[i] * static_cast<float>(scaler.scale()));
  }
}

TEST(GradScaler, RefusesScalesThatWouldRound) {
  EXPECT_THROW(GradScaler(1000), UsageError);
  EXPECT_THROW(GradScaler(0), UsageError);
  EXPECT_THROW(GradScaler(-2), UsageError);
  EXPECT_THROW(GradScaler(std::nan("")), UsageError);
  EXPECT_THROW(GradScaler(1, 0), UsageError);
  EXPECT_THROW(GradScaler(1, INFINITY), UsageError);
  EXPECT_THROW(GradScaler(std::ldexp(1.0, 200)), UsageError);
}

}  // namespace
}  // namespace lockstep::optim
