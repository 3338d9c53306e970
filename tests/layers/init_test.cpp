#include "layers/init.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/parallel.h"
#include "layers/layer_norm.h"
#include "layers/linear.h"

namespace lockstep::layers {
namespace {

using Rule = WeightInit::Rule;

double uniform_bound(Rule rule, Fans fans) {
  return bound(Distribution::uniform, standard_deviation({.rule = rule}, fans));
}

TEST(KnownFaults, O54_FanInOfAConvolution) {
  const Fans plain = filter_fans({64, 3, 3, 64});  // [O, H, W, I]
  EXPECT_EQ(plain.in, 576);
  EXPECT_NEAR(uniform_bound(Rule::fan_in, plain), 0.1020621, 1e-7);
  EXPECT_NEAR(standard_deviation({.rule = Rule::fan_in}, plain), 0.0589256, 1e-7);
  const Fans grouped = filter_fans({64, 3, 3, 16}, 4);
  EXPECT_EQ(grouped.in, 144);
  EXPECT_EQ(grouped.out, 144);
  EXPECT_NEAR(uniform_bound(Rule::fan_in, grouped), 0.2041241, 1e-7);
  EXPECT_NEAR(standard_deviation({.rule = Rule::fan_in}, grouped), 0.1178511, 1e-7);
  EXPECT_THROW(filter_fans({64, 3, 3, 16}, 3), UsageError);
}
TEST(KnownFaults, O54_AnyLayoutOfAConvolution) {
  for (const auto& [shape, layout] : {std::pair{Shape{8, 3, 5, 4}, FilterLayout::ohwi},
                                      std::pair{Shape{8, 4, 3, 5}, FilterLayout::oihw},
                                      std::pair{Shape{3, 5, 4, 8}, FilterLayout::hwio}}) {
    const Fans fans = filter_fans(shape, 2, layout);
    EXPECT_EQ(fans.in, 60);
    EXPECT_EQ(fans.out, 60);
  }
}
TEST(KnownFaults, O54_LinearHoweverStored) {
  for (const Fans& fans : {matrix_fans({6, 4}), matrix_fans({4, 6}, MatrixLayout::in_out)}) {
    EXPECT_EQ(fans.in, 4);
    EXPECT_EQ(fans.out, 6);
    EXPECT_NEAR(uniform_bound(Rule::fan_average, fans), 0.7745967, 1e-7);
    EXPECT_NEAR(standard_deviation({.rule = Rule::fan_average}, fans), 0.4472136, 1e-7);
  }
}
TEST(KnownFaults, O54_SamplesOfAMillion) {
  const int64_t n = 1'000'000;
  const double sd = 0.0589256;
  for (auto distribution :
       {Distribution::uniform, Distribution::normal, Distribution::truncated_normal}) {
    const Tensor x = Initialiser(3).draw({n}, distribution, sd);
    double mean = 0, square = 0, largest = 0;
    for (float v : values(x)) {
      mean += v / double(n);
      square += double{v} * v / double(n);
      largest = std::max(largest, std::abs(double{v}));
    }
    EXPECT_LE(std::abs(mean), 5 * sd / 1000);
    EXPECT_NEAR(std::sqrt(square - mean * mean) / sd, 1, 0.004) << static_cast<int>(distribution);
    if (distribution == Distribution::normal) {
      EXPECT_GT(largest, 4 * sd);
    } else {
      EXPECT_LE(largest, bound(distribution, sd) * (1 + 1e-7));
      EXPECT_GT(largest, bound(distribution, sd) * 0.999);
    }
  }
}
TEST(KnownFaults, O54_HalfPrecisionParametersAreTheRoundedOnes) {
  const Tensor f = Initialiser(3).draw({1001}, Distribution::normal, 0.1);
  const Tensor h = Initialiser(3).draw({1001}, Distribution::normal, 0.1, DType::f16);
  const Tensor b = Initialiser(3).draw({1001}, Distribution::normal, 0.1, DType::bf16);
  for (int i = 0; i < 1001; ++i) {
    EXPECT_EQ(h.data<half>()[i].bits, half_bits(f.data<float>()[i]));
    EXPECT_EQ(b.data<bfloat16>()[i].bits, bfloat16_bits(f.data<float>()[i]));
  }
}

TEST(KnownFaults, O20_InitialWeightsAreEqualOnAllRanks) {
  // What a rank draws otherwise, and how many threads it has, does not matter.
  const auto weights = [](int threads) {
    const ThreadBudget budget(threads);
    Initialiser init(42);
    Linear a(init, 300, 200);
    Linear b(init, 200, 5);
    auto all = values(a.weight());
    for (float v : values(b.weight())) all.push_back(v);
    return all;
  };
  const auto one = weights(1);
  EXPECT_EQ(weights(2), one);
  EXPECT_EQ(weights(3), one);
}

TEST(Init, ParametersDrawFromKeysOfTheirOwn) {
  Initialiser init(1);
  const auto a = values(init.draw({8}, Distribution::normal, 1));
  const auto b = values(init.draw({8}, Distribution::normal, 1));
  EXPECT_NE(a, b);
  Initialiser other(1);
  other.constant({8}, 0);  // parameter 0 is a constant: parameter 1 is b still
  EXPECT_EQ(values(other.draw({8}, Distribution::normal, 1)), b);
  EXPECT_NE(values(Initialiser(2).draw({8}, Distribution::normal, 1)), a);
}

TEST(Init, ALongerTensorBeginsLikeAShorterOne) {
  for (auto distribution :
       {Distribution::uniform, Distribution::normal, Distribution::truncated_normal}) {
    const auto longer = values(Initialiser(1).draw({103}, distribution, 1));
    const auto shorter = values(Initialiser(1).draw({10}, distribution, 1));
    EXPECT_EQ(std::vector<float>(longer.begin(), longer.begin() + 10), shorter);
  }
}

}  // namespace
}  // namespace lockstep::layers
