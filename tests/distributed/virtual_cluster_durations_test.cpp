// Modelled compute times against the closed forms of their laws.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include "distributed/comm/virtual_cluster/durations.h"
#include "tests/support/error_of.h"

namespace lockstep::distributed::virtual_cluster {
namespace {

constexpr uint64_t kSeed = 17;

Durations durations(const std::string& text, int ranks, uint64_t seed = kSeed) {
  return {Cluster::parse("compute=1s," + text), ranks, seed};
}
double whole(const Durations& d, int rank, int64_t micro) {
  return d.seconds(rank, micro, Pass::forward) + d.seconds(rank, micro, Pass::backward);
}

/// Sample mean, its standard error, and sample deviation.
struct Moments {
  double mean, error, deviation;
};
Moments moments(int64_t n, const std::function<double(int64_t)>& x) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) sum += x(i);
  const double mean = sum / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) squares += (x(i) - mean) * (x(i) - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(n - 1));
  return {mean, deviation / std::sqrt(static_cast<double>(n)), deviation};
}

TEST(Durations, ANominalMicroBatchIsAThirdForwardAndTwoThirdsBackward) {
  const Durations d(Cluster::parse("compute=90ms"), 2, kSeed);
  for (int64_t micro : {0, 1, 1000}) {
    EXPECT_DOUBLE_EQ(d.seconds(1, micro, Pass::forward), 0.03);
    EXPECT_DOUBLE_EQ(d.seconds(1, micro, Pass::backward), 0.06);
  }
}

TEST(Durations, OneSlowRankOfEightMakesEveryStepSlower) {
  const Durations d(Cluster::parse("compute=100ms,slow=7:1.3"), 8, kSeed);
  for (int64_t step = 0; step < 3; ++step) {
    double slowest = 0;
    for (int rank = 0; rank < 8; ++rank) slowest = std::max(slowest, whole(d, rank, step));
    EXPECT_DOUBLE_EQ(slowest / whole(d, 0, step), 1.30);
  }
}

struct LawCase {
  const char* text;
  double deviation, least;
};
class Laws : public ::testing::TestWithParam<LawCase> {};

TEST_P(Laws, HaveMeanOneAndTheirDeviation) {
  const LawCase& law = GetParam();
  const Durations d = durations(std::string("jitter=") + law.text, 3);
  constexpr int64_t kSamples = 200'000;
  double least = 1;
  for (int64_t i = 0; i < kSamples; ++i) least = std::min(least, whole(d, 2, i));
  const Moments m = moments(kSamples, [&](int64_t i) { return whole(d, 2, i); });
  EXPECT_NEAR(m.mean, 1, 4 * m.error);
  EXPECT_NEAR(m.deviation, law.deviation, 0.02 * law.deviation);
  EXPECT_GE(least, law.least - 1e-12);
}

INSTANTIATE_TEST_SUITE_P(
    Durations, Laws,
    ::testing::Values(LawCase{"lognormal:0.1", std::sqrt(std::expm1(0.01)), 0},
                      LawCase{"lognormal:0.5", std::sqrt(std::expm1(0.25)), 0},
                      LawCase{"exponential:0.2", 0.2, 0.8}, LawCase{"exponential:1", 1, 0},
                      LawCase{"pareto:8", 1 / std::sqrt(8.0 * 6), 7.0 / 8},
                      LawCase{"pareto:8:0.5", 0.5 / std::sqrt(8.0 * 6), 15.0 / 16}));

/// E[max of n]: of exponential times H_n; of Pareto times, with B = Γ(1-1/α), n!·B/Γ(n+1-1/α)
/// times the least value (David & Nagaraja, Order Statistics, 2003); of lognormal times by
/// Simpson's rule over n·φ·Φ^(n-1).
double expected_maximum_of_exponential(int n) {
  double harmonic = 0;
  for (int i = 1; i <= n; ++i) harmonic += 1.0 / i;
  return harmonic;
}
double expected_maximum_of_pareto(int n, double alpha) {
  return (alpha - 1) / alpha *
         std::exp(std::lgamma(n + 1.0) + std::lgamma(1 - 1 / alpha) -
                  std::lgamma(n + 1.0 - 1 / alpha));
}
double expected_maximum_of_lognormal(int n, double sigma) {
  const auto f = [&](double z) {
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
    const double below = std::erfc(-z / std::numbers::sqrt2) / 2;
    return std::exp(sigma * z - sigma * sigma / 2) * n * density * std::pow(below, n - 1);
  };
  constexpr int kPieces = 4000;
  constexpr double kEnd = 12, kWidth = 2 * kEnd / kPieces;
  double sum = f(-kEnd) + f(kEnd);
  for (int i = 1; i < kPieces; ++i) sum += f(-kEnd + i * kWidth) * (i % 2 == 1 ? 4 : 2);
  return sum * kWidth / 3;
}

TEST(Durations, TheSlowestOfNRanksIsAsLateAsOrderStatisticsSay) {
  EXPECT_NEAR(expected_maximum_of_exponential(8), 2.717857142857143, 1e-15);
  EXPECT_NEAR(expected_maximum_of_pareto(1, 4), 1, 1e-14);
  EXPECT_NEAR(expected_maximum_of_lognormal(1, 0.3), 1, 1e-12);
  for (int ranks : {1, 2, 8, 64}) {
    const std::pair<const char*, double> laws[] = {
        {"jitter=exponential:0.2", 0.8 + 0.2 * expected_maximum_of_exponential(ranks)},
        {"jitter=pareto:5", expected_maximum_of_pareto(ranks, 5)},
        {"jitter=pareto:5:0.3", 0.7 + 0.3 * expected_maximum_of_pareto(ranks, 5)},
        {"jitter=lognormal:0.1", expected_maximum_of_lognormal(ranks, 0.1)},
        {"jitter=lognormal:0.5", expected_maximum_of_lognormal(ranks, 0.5)}};
    for (const auto& [text, expected] : laws) {
      const Durations d = durations(text, ranks);
      const Moments m = moments(4'000, [&](int64_t step) {
        double slowest = 0;
        for (int rank = 0; rank < ranks; ++rank) slowest = std::max(slowest, whole(d, rank, step));
        return slowest;
      });
      EXPECT_NEAR(m.mean, expected, 4 * m.error) << text << " on " << ranks << " ranks";
    }
  }
}

TEST(Durations, RanksAndMicroBatchesAreIndependent) {
  const Durations d = durations("jitter=lognormal:0.2", 3);
  constexpr int64_t kSamples = 50'000;
  const double variance = std::expm1(0.04), bound = 4 / std::sqrt(double{kSamples});
  const auto correlation = [&](const std::function<double(int64_t)>& other) {
    return moments(kSamples, [&](int64_t i) { return (whole(d, 0, i) - 1) * (other(i) - 1); })
               .mean /
           variance;
  };
  EXPECT_GT(correlation([&](int64_t i) { return whole(d, 0, i); }), 0.9);  // it would be seen
  EXPECT_LT(std::abs(correlation([&](int64_t i) { return whole(d, 1, i); })), bound);
  EXPECT_LT(std::abs(correlation([&](int64_t i) { return whole(d, 0, i + 1); })), bound);
  EXPECT_LT(std::abs(correlation([&](int64_t i) { return whole(d, 1, i + 1); })), bound);
}

TEST(Durations, APeriodicSlowDownTakesItsShareOfEveryPeriod) {
  const Durations d = durations("jitter=periodic:10:3:2", 16);
  std::vector<int64_t> first_slow;
  for (int rank = 0; rank < 16; ++rank) {
    for (int64_t begin : {0, 7, 1000})
      for (const Pass pass : {Pass::forward, Pass::backward}) {
        const double nominal = pass == Pass::forward ? 1.0 / 3 : 2.0 / 3;
        int slow = 0, changes = 0;
        for (int64_t i = begin; i < begin + 10; ++i) {
          const double now = d.seconds(rank, i, pass);
          EXPECT_TRUE(now == nominal || now == 2 * nominal) << now;
          slow += now > nominal;
          changes += now != d.seconds(rank, i + 1, pass);
        }
        EXPECT_EQ(slow, 3);
        EXPECT_EQ(changes, 2);  // in a row
      }
    int64_t i = 0;
    while (whole(d, rank, i) > 1.5) ++i;
    while (whole(d, rank, i) < 1.5) ++i;
    first_slow.push_back(i % 10);
  }
  std::ranges::sort(first_slow);
  const auto repeated = std::ranges::unique(first_slow);
  EXPECT_GE(repeated.begin() - first_slow.begin(), 4) << "ranks slow down at different points";
}

TEST(Durations, APauseComesAtTheStartOfForwardWithItsProbability) {
  const Durations d = durations("slow=0:2,jitter=pause:0.05:500ms", 2);
  constexpr int64_t kSamples = 20'000;
  int64_t pauses = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    EXPECT_DOUBLE_EQ(d.seconds(0, i, Pass::backward), 4.0 / 3);
    const double forward = d.seconds(0, i, Pass::forward);
    pauses += forward > 1;
    EXPECT_DOUBLE_EQ(forward, 2.0 / 3 + (forward > 1 ? 0.5 : 0));
  }
  const double p = static_cast<double>(pauses) / kSamples;
  EXPECT_NEAR(p, 0.05, 4 * std::sqrt(0.05 * 0.95 / kSamples));
}

TEST(Durations, LawsMultiply) {
  const Durations jitter = durations("jitter=lognormal:0.3", 8),
                  all = durations("slow=3:1.5,jitter=periodic:1:1:2+lognormal:0.3", 8);
  for (int64_t i = 0; i < 20; ++i) EXPECT_DOUBLE_EQ(whole(all, 3, i), 3 * whole(jitter, 3, i));
}

TEST(Durations, SameSeedSameBitsWhateverTheOrderOfAskingAndTheNumberOfRanks) {
  const std::string text = "jitter=pareto:3+periodic:7:2:3+pause:0.1:1s";
  const Durations a = durations(text, 4), b = durations(text, 64), other = durations(text, 4, 18);
  int differ = 0;
  std::vector<double> seen;
  for (int rank = 0; rank < 4; ++rank)
    for (int64_t i = 0; i < 100; ++i) {
      seen.push_back(a.seconds(rank, i, Pass::backward));
      differ += seen.back() != other.seconds(rank, i, Pass::backward);
    }
  EXPECT_GT(differ, 390);
  for (int rank = 3; rank >= 0; --rank)
    for (int64_t i = 99; i >= 0; --i) {
      EXPECT_EQ(b.seconds(rank, i, Pass::backward), seen.back());
      seen.pop_back();
    }
}

TEST(Durations, TimesThatAreNotKnownAreRefused) {
  EXPECT_EQ(test::error_of([] { Durations(Cluster::parse(""), 2, kSeed); }),
            "[distributed.cluster] compute; expected a time, given or measured, got measure");
  EXPECT_THROW(durations("slow=2:1.3", 2), UsageError);
  EXPECT_THROW(durations("", 2).seconds(2, 0, Pass::forward), UsageError);
}

}  // namespace
}  // namespace lockstep::distributed::virtual_cluster
