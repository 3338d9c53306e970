#include "data/synthetic.h"

#include "core/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace lockstep::data {
namespace {

class MarkovSourceOf : public ::testing::TestWithParam<std::pair<int, int>> {  // order, letters
 protected:
  MarkovSource source_{{.order = GetParam().first, .letters = GetParam().second, .seed = 11}};
};

// Over L letters the standard error of the empirical cross-entropy is about 1/√L.
TEST_P(MarkovSourceOf, EntropyIsTheCrossEntropyOfItsOwnTexts) {
  constexpr int64_t kLength = 400'000;
  EXPECT_NEAR(source_.cross_entropy(source_.text(kLength, 5)), source_.entropy(), 0.01);
  EXPECT_GT(source_.entropy(), 0.1);
  EXPECT_LT(source_.entropy(), 0.97 * std::log(GetParam().second)) << "there is something to learn";
}

// Counting, which knows nothing of the source: it must come near the same number.
TEST_P(MarkovSourceOf, EntropyIsWhatCountingFinds) {
  const auto [order, letters] = GetParam();
  const std::string text = source_.text(400'000, 6);
  for (int known = 0; known <= order; ++known) {
    std::map<std::string, std::map<char, double>> counts;
    for (size_t i = known; i < text.size(); ++i) ++counts[text.substr(i - known, known)][text[i]];
    double entropy = 0;
    for (const auto& [context, next] : counts) {
      double sum = 0;
      for (const auto& [letter, count] : next) sum += count;
      for (const auto& [letter, count] : next) entropy -= count * std::log(count / sum);
    }
    entropy /= static_cast<double>(text.size() - known);
    EXPECT_NEAR(entropy, source_.conditional_entropy(known), 0.01)
        << known << " of " << letters << " known";
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, MarkovSourceOf,
                         ::testing::Values(std::pair{1, 2}, std::pair{1, 8}, std::pair{2, 4},
                                           std::pair{3, 3}));

TEST(MarkovSource, TwoLettersAgreeWithTheFormula) {
  const MarkovSource source({.order = 1, .letters = 2, .seed = 4});
  // Transition probabilities from pair counts of -ln p: two-letter texts have one transition each.
  const double ab = std::exp(-source.cross_entropy("ab")),
               ba = std::exp(-source.cross_entropy("ba"));
  EXPECT_NEAR(ab + std::exp(-source.cross_entropy("aa")), 1, 1e-12);
  const auto h = [](double p) { return -p * std::log(p) - (1 - p) * std::log(1 - p); };
  EXPECT_NEAR(source.entropy(), (ba * h(ab) + ab * h(ba)) / (ab + ba),
              1e-12);  // π(a) = ba / (ab + ba)
}

TEST(MarkovSource, KnowingMoreNeverHurts) {
  const MarkovSource source({.order = 3, .letters = 4, .seed = 2});
  for (int known = 0; known < 3; ++known)
    EXPECT_LT(source.conditional_entropy(known + 1), source.conditional_entropy(known));
  EXPECT_EQ(source.conditional_entropy(9), source.entropy());
  EXPECT_NEAR(
      source.best_loss(4),
      (source.conditional_entropy(1) + source.conditional_entropy(2) + 2 * source.entropy()) / 4,
      1e-12);
  EXPECT_EQ(source.best_loss(1), source.conditional_entropy(1));
}

TEST(MarkovSource, IsAFunctionOfItsSeeds) {
  const MarkovSource a({.seed = 1}), b({.seed = 1}), c({.seed = 2});
  EXPECT_EQ(a.text(100, 3), b.text(100, 3));
  EXPECT_EQ(a.text(100, 3), a.text(200, 3).substr(0, 100));
  EXPECT_NE(a.text(100, 3), a.text(100, 4));
  EXPECT_NE(a.entropy(), c.entropy());
  EXPECT_TRUE(std::ranges::all_of(a.text(1000, 3), [](char x) { return x >= 'a' && x < 'a' + 8; }));
}

TEST(MarkovSource, RefusesImpossibleSettings) {
  EXPECT_THROW(MarkovSource({.order = 0}), UsageError);
  EXPECT_THROW(MarkovSource({.letters = 1}), UsageError);
  EXPECT_THROW(MarkovSource({.letters = 27}), UsageError);
  EXPECT_THROW(MarkovSource({.order = 4, .letters = 20}), UsageError);
  EXPECT_THROW(MarkovSource({}).cross_entropy("a"), UsageError);
  EXPECT_THROW(MarkovSource({}).cross_entropy("a\n"), UsageError);
}

}  // namespace
}  // namespace lockstep::data
