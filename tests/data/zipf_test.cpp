#include "data/zipf.h"

#include "core/check.h"
#include "core/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lockstep::data {
namespace {

class ZipfOf : public ::testing::TestWithParam<std::pair<int64_t, double>> {
 protected:
  int64_t n() const { return GetParam().first; }
  double s() const { return GetParam().second; }
  Zipf zipf_{GetParam().first, GetParam().second};
};

TEST_P(ZipfOf, ProbabilitiesFollowTheLawAndSumToOne) {
  double norm = 0, sum = 0;
  for (int64_t k = 0; k < n(); ++k) norm += std::pow(static_cast<double>(k + 1), -s());
  for (int64_t k = 0; k < n(); ++k) {
    sum += zipf_.probability(k);
    if (k < 5 || k == n() - 1) {
      EXPECT_NEAR(zipf_.probability(k) * norm, std::pow(static_cast<double>(k + 1), -s()), 1e-7);
    }
  }
  EXPECT_NEAR(sum, 1, 1e-7);
}

// Counts in bands of places against the law, five standard errors wide.
TEST_P(ZipfOf, DrawsFollowTheLaw) {
  constexpr int64_t kDraws = 200'000;
  const Random random(9, RandomStream::tests);
  const auto band = [](int64_t place) { return static_cast<size_t>(std::log2(place + 1) * 2); };
  std::vector<double> seen(64), expected(64);
  for (int64_t i = 0; i < kDraws; ++i) {
    const auto words = random.block(i);
    const int64_t place = zipf_((uint64_t{words[0]} << 32) | words[1]);
    ASSERT_GE(place, 0);
    ASSERT_LT(place, n());
    ++seen[band(place)];
  }
  for (int64_t k = 0; k < n(); ++k) expected[band(k)] += kDraws * zipf_.probability(k);
  for (size_t b = 0; b < seen.size(); ++b)
    EXPECT_NEAR(seen[b], expected[b], 5 * std::sqrt(expected[b]) + 1) << "band " << b;
}

TEST_P(ZipfOf, GrowsWithTheNumberDrawnFrom) {
  int64_t before = 0;
  for (uint64_t i = 0; i < 20'000; ++i) {
    const int64_t place = zipf_(i * (UINT64_MAX / 20'000));
    ASSERT_GE(place, before);
    before = place;
  }
  EXPECT_EQ(zipf_(0), 0);
  EXPECT_EQ(zipf_(UINT64_MAX), n() - 1);
}

INSTANTIATE_TEST_SUITE_P(Laws, ZipfOf,
                         ::testing::Values(std::pair{1, 1.0}, std::pair{2, 0.0},
                                           std::pair{100, 1.1}, std::pair{4096, 1.0},
                                           std::pair{4097, 1.0}, std::pair{50'000, 1.0},
                                           std::pair{50'000, 0.0}, std::pair{50'000, 0.7},
                                           std::pair{1'000'000, 1.2}));

TEST(Zipf, RefusesWhatItIsNot) {
  EXPECT_THROW(Zipf(0, 1), UsageError);
  EXPECT_THROW(Zipf(1, -0.1), UsageError);
  EXPECT_THROW(Zipf(1, std::nan("")), UsageError);
}

}  // namespace
}  // namespace lockstep::data
