#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "apps/compare/claims/compression_kinds.h"
#include "apps/compare/claims/oscillation.h"
#include "apps/compare/claims/top_percent.h"

/// Rules of the claims about compression, fed with made-up figures on both sides of each threshold.
namespace lockstep::apps {
namespace {

TEST(ClaimA2c, TheSnippetFailsOnSmallTensorsAndSendsAllOfSparseOnes) {
  std::vector<float> g(200);
  for (size_t i = 0; i < g.size(); ++i) g[i] = i % 2 == 0 ? static_cast<float>(i) : -1.0f;
  EXPECT_FALSE(snippet_mask(g, 0.01).fails);
  EXPECT_EQ(snippet_mask(g, 0.01).sent, 2);
  g.resize(99);
  EXPECT_TRUE(snippet_mask(g, 0.01).fails);
  EXPECT_EQ(snippet_mask(g, 0.01).sent, 0);
  std::vector<float> sparse(1000);
  for (size_t i = 0; i < 10; ++i) sparse[7 * i] = -1.0f - static_cast<float>(i);
  EXPECT_EQ(snippet_mask(sparse, 0.01).sent, 10);
  sparse[0] = 0;  // nine of ten
  EXPECT_EQ(snippet_mask(sparse, 0.01).sent, 1000);
}

TEST(ClaimA2c, Rule) {
  const SnippetFaults fine{.tensors = 10, .failing = 0, .most_sent = 0.019};
  EXPECT_EQ(judge_top_percent(0.0119, 0.099, fine).direction.finding, Finding::reproduced);
  EXPECT_EQ(judge_top_percent(0.0119, 0.099, fine).size->finding, Finding::reproduced);
  EXPECT_EQ(judge_top_percent(0.0121, 0.101, fine).direction.finding, Finding::in_part);
  EXPECT_EQ(judge_top_percent(0.0121, 0.101, fine).size->finding, Finding::in_part);
  EXPECT_EQ(judge_top_percent(0.0201, 0.51, fine).direction.finding, Finding::in_part);
  EXPECT_EQ(judge_top_percent(0.0201, 0.51, fine).size->finding, Finding::not_reproduced);
  EXPECT_EQ(judge_top_percent(0.0049, 0.09, fine).size->finding, Finding::not_reproduced);
  EXPECT_EQ(judge_top_percent(NAN, NAN, fine).size->finding, Finding::inconclusive);

  const auto direction = [](double most, const SnippetFaults& faults) {
    return judge_top_percent(0.01, most, faults).direction.finding;
  };
  EXPECT_EQ(direction(0.09, {10, 0, 0.021}), Finding::in_part);
  EXPECT_EQ(direction(0.09, {10, 0, 0.11}), Finding::in_part);
  EXPECT_EQ(direction(0.09, {10, 1, 0.01}), Finding::in_part);
  EXPECT_EQ(direction(0.51, {10, 1, 0.01}), Finding::not_reproduced);
  EXPECT_EQ(direction(0.51, {10, 0, 0.11}), Finding::not_reproduced);
  EXPECT_EQ(direction(0.51, {10, 0, 0.09}), Finding::in_part);
}

statistics::BySeed by_seed(std::initializer_list<double> values) {
  statistics::BySeed losses;
  for (const double value : values) losses[static_cast<int64_t>(losses.size()) + 1] = value;
  return losses;
}

TEST(ClaimA2b, Rule) {
  CompressedArm fine{.name = "a",
                     .losses = by_seed({2.0089, 2.0097, 2.0093}),
                     .plain = by_seed({2, 2, 2}),
                     .ratio = {"ratio", "", 2.05, Interval{2.0, 2.1}, 3},
                     .tolerated = 0.01,
                     .claimed = {1.9, 2.1},
                     .near = {1.6, 2.4}};
  CompressedArm bad = fine;
  bad.losses = by_seed({2.0111, 2.0103, 2.0107});
  bad.ratio.interval = {2.41, 2.5};
  const auto judged = [](const CompressedArm& a, const CompressedArm& b) {
    const CompressedArm arms[] = {a, b};
    return judge_compression_kinds(arms);
  };
  EXPECT_EQ(judged(fine, fine).direction.finding, Finding::reproduced);
  EXPECT_EQ(judged(fine, fine).size->finding, Finding::reproduced);
  EXPECT_EQ(judged(fine, bad).direction.finding, Finding::in_part);
  EXPECT_EQ(judged(fine, bad).size->finding, Finding::in_part);
  EXPECT_EQ(judged(bad, bad).direction.finding, Finding::not_reproduced);
  EXPECT_EQ(judged(bad, bad).size->finding, Finding::not_reproduced);

  CompressedArm edge = fine;
  edge.losses = by_seed({2.009, 2.0095, 2.0111});  // the interval reaches over 0.01
  EXPECT_EQ(judged(edge, edge).direction.finding, Finding::inconclusive);
  edge.losses = by_seed({1.5, 1.5, 1.5});  // better than without
  EXPECT_EQ(judged(edge, edge).direction.finding, Finding::reproduced);
  edge.losses = by_seed({NAN, NAN, NAN});
  EXPECT_EQ(judged(edge, edge).direction.finding, Finding::not_reproduced);
  edge.losses = by_seed({NAN, 2, 2});
  EXPECT_EQ(judged(edge, edge).direction.finding, Finding::inconclusive);
  edge.ratio.interval = {2.0, 2.2};
  EXPECT_EQ(judged(edge, edge).size->finding, Finding::in_part);
  edge.ratio.interval = {};
  EXPECT_EQ(judged(edge, edge).size->finding, Finding::inconclusive);
}

TEST(ClaimA2d, JaggednessIsThatOfTheStepsBetween) {
  const Points curve{.step = {25, 50, 75, 100, 125}, .value = {9, 4, 3, 2.5, 2}};
  // Differences -1 and -0.5 between the three in the middle.
  EXPECT_NEAR(jaggedness_between(curve, 50, 100), std::sqrt(0.125), 1e-12);
  EXPECT_TRUE(std::isnan(jaggedness_between(curve, 100, 125)));
  EXPECT_TRUE(std::isnan(jaggedness_between({.step = {1, 2, 3}, .value = {1, NAN, 1}}, 1, 3)));
}

Figure around(double low, double high) {
  return {"index", "", (low + high) / 2, Interval{low, high}, 5};
}

TEST(ClaimA2d, Rule) {
  const auto of = [](Figure early, Figure late, Figure fed_early, Figure fed_late) {
    return Oscillation{"SGD", early, late, fed_early, fed_late};
  };
  const auto judged = [](const Oscillation& a, const Oscillation& b) {
    const Oscillation both[] = {a, b};
    return judge_oscillation(both).finding;
  };
  const Figure calm = around(1.1, 1.24), above = around(1.26, 1.4), over = around(1.2, 1.3),
               wild = around(2.01, 3), tame = around(1.5, 1.99);
  const Oscillation as_claimed = of(calm, wild, calm, calm);
  EXPECT_EQ(judged(as_claimed, as_claimed), Finding::reproduced);
  EXPECT_EQ(judged(as_claimed, of(calm, tame, calm, calm)), Finding::in_part);
  EXPECT_EQ(judged(of(calm, tame, calm, calm), of(above, tame, calm, wild)),
            Finding::not_reproduced);
  for (const Oscillation& one :
       {of(above, wild, calm, calm), of(calm, wild, above, calm), of(calm, wild, calm, above)})
    EXPECT_EQ(judged(one, one), Finding::in_part);
  EXPECT_EQ(judged(of(over, wild, calm, calm), of(over, wild, calm, calm)), Finding::inconclusive);
  EXPECT_EQ(judged(of(calm, around(1.9, 2.1), calm, calm), of(calm, tame, calm, calm)),
            Finding::inconclusive);
  EXPECT_EQ(judged(of(calm, {"index", "", NAN, {}, 5}, calm, calm), of(calm, tame, calm, calm)),
            Finding::inconclusive);
}

TEST(ClaimA2d, RuleOfTheBias) {
  const auto judged = [](std::initializer_list<double> a, std::initializer_list<double> b) {
    const EarlyGap gaps[] = {{"SGD", statistics::test_margin(std::vector<double>(a), 0.02)},
                             {"AdamW", statistics::test_margin(std::vector<double>(b), 0.02)}};
    return judge_early_gap(gaps).finding;
  };
  EXPECT_EQ(judged({0.0204, 0.0205, 0.0206}, {0.0204, 0.0205, 0.0206}), Finding::reproduced);
  EXPECT_EQ(judged({0.0194, 0.0195, 0.0196}, {0.0194, 0.0195, 0.0196}), Finding::not_reproduced);
  EXPECT_EQ(judged({0.0194, 0.0195, 0.0196}, {0.0204, 0.0205, 0.0206}), Finding::in_part);
  EXPECT_EQ(judged({0.01, 0.02, 0.03}, {0.0204, 0.0205, 0.0206}), Finding::inconclusive);
}

TEST(ClaimA2d, RuleOfMomentum) {
  const auto judged = [](int64_t momentum, int64_t plain, int64_t seeds) {
    return judge_divergences({momentum, plain, seeds}).finding;
  };
  EXPECT_EQ(judged(5, 0, 5), Finding::reproduced);
  EXPECT_EQ(judged(4, 0, 5), Finding::in_part);
  EXPECT_EQ(judged(5, 1, 5), Finding::in_part);
  EXPECT_EQ(judged(0, 0, 5), Finding::not_reproduced);
  EXPECT_EQ(judged(0, 0, 0), Finding::inconclusive);
}

}  // namespace
}  // namespace lockstep::apps
