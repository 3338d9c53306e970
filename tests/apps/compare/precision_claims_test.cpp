#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "apps/compare/claims/loss_scale.h"

/// Rules about mixed precision, fed with made-up figures on both sides of each threshold.
namespace lockstep::apps {
namespace {

statistics::PairedTest gap(std::vector<double> differences) {
  return statistics::test_margin(differences, 0.02);
}
const std::vector<double> kNone{.001, .002, .0015}, kHarm{.5, .52, .51}, kWide{-.05, .08, .01},
    kGone{NAN, NAN, NAN};

TEST(ClaimB4b, Rule) {
  const std::vector<Dose> doses{{-16, 0, gap(kNone)}, {0, 0.06, gap(kNone)}, {8, 0.7, gap(kHarm)}};
  const auto direction = [&](std::vector<Underflow> seeds) {
    return judge_loss_scale(seeds, doses).direction.finding;
  };
  EXPECT_EQ(direction({{0.06, 0.0059}, {0.001, 0.00009}}), Finding::reproduced);
  EXPECT_EQ(direction({{0.06, 0.0061}, {0.06, 0}}), Finding::in_part);
  EXPECT_EQ(direction({{0.06, 0.031}, {0.06, 0.029}}), Finding::in_part);
  EXPECT_EQ(direction({{0.06, 0.031}, {0.06, 0.06}}), Finding::not_reproduced);
  EXPECT_EQ(direction({{0.06, 0}, {0.0009, 0}}), Finding::inconclusive);
  EXPECT_EQ(direction({{0.06, NAN}, {0.06, 0}}), Finding::inconclusive);
  EXPECT_EQ(direction({{0, 0}}), Finding::inconclusive);
  EXPECT_EQ(direction({}), Finding::inconclusive);
}

TEST(ClaimB4b, ZerosTellHarmWhereEveryHarmfulScaleMakesMore) {
  const auto size = [](std::vector<Dose> doses) {
    return judge_loss_scale({{0.06, 0}}, doses).size->finding;
  };
  EXPECT_EQ(size({{0, 0.06, gap(kNone)}, {8, 0.7, gap(kHarm)}}), Finding::reproduced);
  EXPECT_EQ(size({{0, 0.06, gap(kNone)}, {8, 0.7, gap(kGone)}}), Finding::reproduced);
  EXPECT_EQ(size({{0, 0.71, gap(kNone)}, {8, 0.7, gap(kHarm)}}), Finding::in_part);
  EXPECT_EQ(size({{0, 0.06, gap(kNone)}, {8, 0.7, gap(kNone)}}), Finding::not_reproduced);
  EXPECT_EQ(size({{0, 0.06, gap(kNone)}, {8, 0.7, gap(kWide)}}), Finding::inconclusive);
}

}  // namespace
}  // namespace lockstep::apps
