#include "apps/transformer/sampling.h"

#include "core/check.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::apps {
namespace {

TEST(Sampling, FollowsTheProbabilities) {
  const std::vector<float> logits{std::log(0.1f), std::log(0.6f), std::log(0.3f)};
  std::vector<int> counts(3);
  for (int i = 0; i < 1000; ++i)
    ++counts[static_cast<size_t>(choose_token(logits, {}, (i + 0.5) / 1000))];
  EXPECT_EQ(counts, (std::vector<int>{100, 600, 300}));
}

TEST(Sampling, TemperatureSharpensAndZeroIsTheLikeliest) {
  const std::vector<float> logits{0, 1, 3, 2};
  for (double u : {0.0, 0.5, 0.999999}) EXPECT_EQ(choose_token(logits, {.temperature = 0}, u), 2);
  std::vector<int> counts(4);
  for (int i = 0; i < 1000; ++i)
    ++counts[static_cast<size_t>(choose_token(logits, {.temperature = 0.5}, (i + 0.5) / 1000))];
  const double z = 1 + std::exp(-2.0) + std::exp(-4.0) + std::exp(-6.0);
  EXPECT_NEAR(counts[2], 1000 / z, 1.5);
  EXPECT_NEAR(counts[0], 1000 * std::exp(-6.0) / z, 1.5);
}

TEST(Sampling, TopKLeavesOutTheRestAndTiesGoToLowerIndices) {
  const std::vector<float> logits{1, 5, 1, 1};
  for (double u : {0.0, 0.5, 0.9999999}) EXPECT_LE(choose_token(logits, {.top_k = 2}, u), 1);
  EXPECT_EQ(choose_token(logits, {.top_k = 1}, 0.99), 1);
  EXPECT_GE(choose_token(logits, {.top_k = 100}, 0.9999999), 2);
}

TEST(Sampling, ExtremeLogitsNeitherOverflowNorPass) {
  const float inf = INFINITY;
  EXPECT_EQ(choose_token(std::vector<float>{-3e38f, 3e38f, -inf}, {}, 0.5), 1);
  EXPECT_EQ(choose_token(std::vector<float>{1, 0}, {.temperature = 1e-300}, 0.999), 0);
  EXPECT_THROW(choose_token(std::vector<float>{1, NAN}, {}, 0.5), SystemError);
  EXPECT_THROW(choose_token(std::vector<float>{1, inf}, {}, 0.5), SystemError);
  EXPECT_THROW(choose_token(std::vector<float>{-inf, -inf}, {}, 0.5), SystemError);
}

}  // namespace
}  // namespace lockstep::apps
