#include "core/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "core/check.h"

namespace lockstep {
namespace {

// The known answers published with Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, IsAPureFunctionOfSeedStreamKeyAndPosition) {
  const Random a(1, RandomStream::dropout, 3);
  EXPECT_EQ(a.word(12345), Random(1, RandomStream::dropout, 3).word(12345));
  EXPECT_NE(a.block(7), Random(2, RandomStream::dropout, 3).block(7));
  EXPECT_NE(a.block(7), Random(1, RandomStream::tests, 3).block(7));
  EXPECT_NE(a.block(7), Random(1, RandomStream::dropout, 4).block(7));
  EXPECT_NE(a.block(7), a.block(7 + (uint64_t{1} << 32)));
  EXPECT_NE(a.block(7), Random(1 + (uint64_t{1} << 32), RandomStream::dropout, 3).block(7));
  for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(a.word(i), a.block(i / 4)[i % 4]);
}

TEST(Random, UniformNumbersAreUniform) {
  const Random r(5, RandomStream::tests);
  const int n = 1000000;
  double sum = 0, square = 0, sum53 = 0;
  for (int i = 0; i < n; ++i) {
    const double u = r.uniform(i), v = r.uniform53(i);
    ASSERT_TRUE(u >= 0 && u < 1 && v >= 0 && v < 1);
    sum += u;
    square += u * u;
    sum53 += v;
  }
  EXPECT_NEAR(sum / n, 0.5, 5 / std::sqrt(12.0 * n));
  EXPECT_NEAR(sum53 / n, 0.5, 5 / std::sqrt(12.0 * n));
  EXPECT_NEAR(square / n, 1.0 / 3, 0.002);
}

TEST(Random, NormalNumbersAreNormal) {
  const Random r(6, RandomStream::tests);
  const int n = 1000000;
  double sum = 0, square = 0, fourth = 0;
  int beyond = 0;
  for (int i = 0; i < n; ++i) {
    const double x = r.normal(i);
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
    beyond += std::abs(x) > 1.959964;
  }
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(square / n, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96.0 / n));
  EXPECT_NEAR(beyond / double(n), 0.05, 5 * std::sqrt(0.05 * 0.95 / n));
}

TEST(Random, BelowCoversItsRangeEvenly) {
  const Random r(7, RandomStream::tests);
  std::vector<int> counts(7, 0);
  for (int i = 0; i < 70000; ++i) ++counts.at(r.below(7, i));
  for (int c : counts) EXPECT_NEAR(c, 10000, 500);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(r.below(1, i), 0u);
  const uint64_t huge = (uint64_t{1} << 63) + 5;
  for (int i = 0; i < 100; ++i) EXPECT_LT(r.below(huge, i), huge);
}

TEST(Permutation, EveryPlaceIsTakenOnce) {
  for (uint64_t n : {1, 2, 3, 4, 5, 7, 16, 17, 100, 1000, 4097, 65536}) {
    const Permutation p(n, Random(8, RandomStream::tests));
    std::vector<bool> taken(n, false);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t j = p(i);
      ASSERT_LT(j, n);
      ASSERT_FALSE(taken[j]) << n << ": " << j << " twice";
      taken[j] = true;
    }
  }
}

TEST(Permutation, IsShuffledAndDependsOnTheSeed) {
  const uint64_t n = 10000;
  const Permutation p(n, Random(9, RandomStream::tests)), q(n, Random(10, RandomStream::tests));
  int fixed = 0, same = 0, rising = 0;
  for (uint64_t i = 0; i < n; ++i) {
    fixed += p(i) == i;
    same += p(i) == q(i);
    rising += i > 0 && p(i) > p(i - 1);
  }
  EXPECT_LT(fixed, 10);
  EXPECT_LT(same, 10);
  EXPECT_NEAR(rising, 5000, 250);
}

TEST(Permutation, WorksFarBeyond32BitsAndRefusesNonsense) {
  const uint64_t n = (uint64_t{1} << 40) + 3;
  const Permutation p(n, Random(11, RandomStream::tests));
  std::set<uint64_t> seen;
  for (uint64_t i = n - 1000; i < n; ++i) {
    EXPECT_LT(p(i), n);
    seen.insert(p(i));
  }
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_THROW(p(n), UsageError);
  EXPECT_THROW(Permutation(0, Random(1, RandomStream::tests)), UsageError);
}

}  // namespace
}  // namespace lockstep
