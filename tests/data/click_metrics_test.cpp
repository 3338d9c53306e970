#include "data/auc.h"
#include "data/calibration.h"
#include "data/log_loss.h"
#include "data/metrics.h"

#include "core/random.h"
#include "tests/support/error_of.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep::data {
namespace {

using Floats = std::vector<float>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::optional<double> auc(const Floats& scores, const Floats& labels) {
  Auc auc;
  auc.add(scores, labels);
  return auc.value();
}

TEST(KnownFaults, O21_MetricsOfClicksAreMeansOverSamples) {
  WeightedMean one, a, b;
  for (const auto& [sum, weight] : {std::pair{2.0, 2.0}, {2.0, 2.0}, {6.0, 1.0}})
    one.add(sum, weight);
  EXPECT_EQ(one.mean(), 2.0);  // not 2.6667
  a.add(4, 4);
  b.add(6, 1);
  a.merge(b);
  EXPECT_EQ(a.mean(), 2.0);  // not 3.5
  EXPECT_EQ(auc({1, 1, 1, 1}, {0, 1, 1, 0}), 0.5);
  EXPECT_EQ(auc({1, 2}, {1, 1}), std::nullopt);
  EXPECT_EQ(auc({1, 2}, {0, 0}), std::nullopt);
  EXPECT_EQ(auc({}, {}), std::nullopt);
}

TEST(KnownFaults, O49a_ATieIsOneHalfInAnyOrder) {
  std::vector<int> order{0, 1, 2};
  const Floats labels{0, 1, 1}, scores{0.5f, 0.9f, 0.5f};
  do {
    Floats s, l;
    for (const int i : order) {
      s.push_back(scores[i]);
      l.push_back(labels[i]);
    }
    EXPECT_EQ(auc(s, l), 0.75);
  } while (std::ranges::next_permutation(order).found);
}

TEST(KnownFaults, O49b_TheAucOfRanksIsThatOfAllSamples) {
  Auc a, b, one_class;
  a.add(Floats{0.1f, 0.2f}, Floats{0, 1});
  b.add(Floats{0.6f, 0.7f, 0.3f}, Floats{0, 1, 1});
  Auc ab = a, ba = b;
  ab.merge(b);
  ba.merge(a.positives(), a.negatives());
  EXPECT_DOUBLE_EQ(*ab.value(), 2.0 / 3);
  EXPECT_EQ(ab.value(), ba.value());
  one_class.add(Floats{0.2f}, Floats{1});
  a.merge(one_class);
  EXPECT_EQ(a.value(), 1.0);
}

TEST(KnownFaults, O49c_LogitsDoNotTieWhereProbabilitiesDo) {
  EXPECT_EQ(auc({20, 30}, {0, 1}), 1.0);
}

TEST(KnownFaults, O49d_LogLossIsNeitherClippedNorNegative) {
  EXPECT_NEAR(log_loss(20, 0), 20, 1e-8);
  EXPECT_NEAR(log_loss(-20, 1), 20, 1e-8);
  EXPECT_EQ(log_loss(1e6, 0), 1e6);
  EXPECT_EQ(log_loss(kInfinity, 1), 0);
  EXPECT_EQ(log_loss(-kInfinity, 0), 0);
  EXPECT_EQ(log_loss(kInfinity, 0), kInfinity);
  for (double z = -800; z <= 800; z += 0.5) {
    EXPECT_GE(log_loss(z, 1), 0) << z;
    EXPECT_GE(log_loss(z, 0), 0) << z;
  }
  EXPECT_NEAR(log_loss(0.3, 0.25), -0.25 * std::log(sigmoid(0.3)) - 0.75 * std::log(sigmoid(-0.3)),
              1e-15);
  EXPECT_TRUE(std::isnan(log_loss(NAN, 0)));
}

TEST(KnownFaults, O49e_CalibrationErrorCountsEveryBin) {
  Calibration top(10);
  top.add(0.95, 1);
  top.add(1.0, 0);
  EXPECT_NEAR(*top.error(), 0.475, 1e-9);  // 1.0 is in the last bin, not in an eleventh
  Calibration bottom(10);
  bottom.add(0.0, 1);
  EXPECT_EQ(bottom.error(), 1.0);
  EXPECT_EQ(Calibration(10).error(), std::nullopt);
}

TEST(KnownFaults, O49f_NegativesKeptAtARate) {
  EXPECT_NEAR(undo_negative_sampling(0.5, 0.1), 0.0909091, 1e-7);
  EXPECT_NEAR(undo_negative_sampling(0.9, 0.1), 0.4736842, 1e-7);
  EXPECT_EQ(undo_negative_sampling(0.3, 1), 0.3);
  EXPECT_EQ(undo_negative_sampling(0, 0.1), 0);
  EXPECT_EQ(undo_negative_sampling(1, 0.1), 1);
  for (const double z : {-5.0, 0.0, 3.0})
    EXPECT_NEAR(sigmoid(undo_negative_sampling_of_logit(z, 0.1)),
                undo_negative_sampling(sigmoid(z), 0.1), 1e-15);
  EXPECT_THROW(undo_negative_sampling(0.5, 0), UsageError);
  EXPECT_THROW(undo_negative_sampling_of_logit(0.5, 1.5), UsageError);
}

// Few distinct scores, so that most pairs tie within or over the classes.
struct Sample {
  Floats scores, labels;
  explicit Sample(int n) {
    const Random random(3, RandomStream::tests);
    for (int i = 0; i < n; ++i) {
      scores.push_back(static_cast<float>(random.word(2 * i) % 17) / 4 - 2);
      labels.push_back(random.word(2 * i + 1) % 3 == 0 ? 1.0f : 0.0f);
    }
  }
};

TEST(Auc, IsTheShareOfPairsWon) {
  const Sample sample(400);
  double wins = 0, pairs = 0;
  for (size_t i = 0; i < sample.scores.size(); ++i)
    for (size_t j = 0; j < sample.scores.size(); ++j)
      if (sample.labels[i] == 1 && sample.labels[j] == 0) {
        pairs += 1;
        wins += sample.scores[i] > sample.scores[j]    ? 1
                : sample.scores[i] == sample.scores[j] ? 0.5
                                                       : 0;
      }
  EXPECT_DOUBLE_EQ(*auc(sample.scores, sample.labels), wins / pairs);
}

TEST(Auc, AnySplitOverRanksGivesTheSameBits) {
  const Sample sample(1000);
  const double whole = *auc(sample.scores, sample.labels);
  for (int ranks = 2; ranks <= 7; ++ranks) {
    std::vector<Auc> parts(ranks);
    for (size_t i = 0; i < sample.scores.size(); ++i)
      parts[i * i % ranks].add({&sample.scores[i], 1}, {&sample.labels[i], 1});
    Auc all;
    for (const Auc& part : parts) all.merge(part);
    EXPECT_EQ(all.value(), whole) << ranks;
  }
}

TEST(Auc, ANanMakesItUndefinedAndInfinitiesAreScores) {
  EXPECT_EQ(auc({NAN, 1, 2}, {0, 1, 0}), std::nullopt);
  EXPECT_EQ(auc({1, NAN, 2}, {0, 1, 0}), std::nullopt);
  EXPECT_EQ(auc({-INFINITY, INFINITY}, {0, 1}), 1.0);
  EXPECT_EQ(auc({-0.0f, 0.0f}, {0, 1}), 0.5);
}

TEST(Auc, RefusesWhatIsNoLabel) {
  Auc auc;
  EXPECT_NE(test::error_of([&] { auc.add(Floats{1}, Floats{0.5f}); }).find("expected 0 or 1"),
            std::string::npos);
  EXPECT_THROW(auc.add(Floats{1}, Floats{}), UsageError);
  EXPECT_TRUE(auc.positives().empty() && auc.negatives().empty());
}

TEST(Calibration, RatioIsPredictedToObservedClicks) {
  Calibration calibration;
  for (int i = 0; i < 10; ++i) calibration.add(0.4, i < 2 ? 1 : 0);
  EXPECT_NEAR(*calibration.ratio(), 2.0, 1e-9);
  EXPECT_NEAR(*calibration.error(), 0.2, 1e-9);
  Calibration none;
  none.add(0.4, 0);
  EXPECT_EQ(none.ratio(), std::nullopt);
}

TEST(Calibration, AnySplitOverRanksGivesTheSameBits) {
  const Sample sample(1000);
  Calibration whole(7);
  whole.add(sample.scores, sample.labels);
  for (int ranks = 2; ranks <= 5; ++ranks) {
    std::vector<Calibration> parts(ranks, Calibration(7));
    for (size_t i = 0; i < sample.scores.size(); ++i)
      parts[i % ranks].add({&sample.scores[i], 1}, {&sample.labels[i], 1});
    Calibration all(7);
    for (const Calibration& part : parts) all.merge(part.sums());
    EXPECT_EQ(all.error(), whole.error());
    EXPECT_EQ(all.ratio(), whole.ratio());
    EXPECT_EQ(all.samples(), 1000);
  }
}

TEST(Calibration, RefusesWhatIsNoProbability) {
  Calibration calibration;
  for (const double p : {-0.1, 1.1, std::nan("")}) EXPECT_THROW(calibration.add(p, 0), UsageError);
  EXPECT_THROW(calibration.add(0.5, 2), UsageError);
  EXPECT_THROW(Calibration(0), UsageError);
  EXPECT_THROW(calibration.merge(std::vector<int64_t>(3)), UsageError);
}

}  // namespace
}  // namespace lockstep::data
