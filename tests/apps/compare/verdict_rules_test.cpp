#include "apps/compare/verdict_rules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "apps/compare/verdict_text.h"
#include "core/check.h"

namespace lockstep::apps {
namespace {

Figure known(double low, double high) {
  return {"ratio", "", (low + high) / 2, Interval{low, high}, 9};
}
Finding finding(const Judgement& judgement) { return judgement.finding; }

constexpr Interval kClaimed{1.27, 1.33}, kNear{1.20, 1.40};
Finding of(const Figure& figure) {
  return finding(within(figure, kClaimed, kNear, Provenance::measured));
}

TEST(Rules, WithinDecidesOnlyWhatTheWholeIntervalShows) {
  EXPECT_EQ(of(known(1.28, 1.32)), Finding::reproduced);
  EXPECT_EQ(of(known(1.26, 1.32)), Finding::in_part);
  EXPECT_EQ(of(known(1.34, 1.39)), Finding::in_part);
  EXPECT_EQ(of(known(1.38, 1.42)), Finding::inconclusive);
  EXPECT_EQ(of(known(1.41, 1.5)), Finding::not_reproduced);
  EXPECT_EQ(of(known(1.0, 1.1)), Finding::not_reproduced);
}

TEST(Rules, AFigureWithoutAnIntervalDecidesOnlyWhereItWasComputed) {
  EXPECT_EQ(of({"ratio", "", 1.3}), Finding::reproduced);
  EXPECT_EQ(of({"ratio", "", 1.3, {}, 3}), Finding::inconclusive);
  EXPECT_EQ(of({"ratio", "", NAN}), Finding::inconclusive);
  EXPECT_EQ(of({"ratio", "", NAN, Interval{1.28, 1.32}, 3}), Finding::inconclusive);
}

TEST(Rules, AtLeastAndAtMostHaveTwoEdges) {
  const auto least = [](double low, double high) {
    return finding(at_least(known(low, high), 2, 1.25, Provenance::measured));
  };
  EXPECT_EQ(least(2.0, 3), Finding::reproduced);
  EXPECT_EQ(least(1.5, 3), Finding::in_part);
  EXPECT_EQ(least(1.2, 3), Finding::inconclusive);
  EXPECT_EQ(least(1.0, 1.2), Finding::not_reproduced);
  const auto most = [](double low, double high) {
    return finding(at_most(known(low, high), 1, 2, Provenance::measured));
  };
  EXPECT_EQ(most(0.5, 1), Finding::reproduced);
  EXPECT_EQ(most(0.5, 1.5), Finding::in_part);
  EXPECT_EQ(most(1.5, 2.5), Finding::inconclusive);
  EXPECT_EQ(most(2.1, 2.5), Finding::not_reproduced);
  EXPECT_THROW(at_least(known(1, 2), 1, 2, Provenance::measured), UsageError);
}

Judgement same_of(const std::vector<double>& d) {
  const auto test = statistics::test_margin(d, 0.02);
  return same(difference_figure("gap", "nats", test), test);
}
Judgement larger_of(const std::vector<double>& d) {
  const auto test = statistics::test_margin(d, 0.02);
  return larger(difference_figure("gap", "nats", test), test);
}

TEST(Rules, SameAndLargerFollowThePairedTest) {
  const std::vector<double> little{.001, .003, .002}, much{.041, .043, .042}, less{-.041, -.043},
      wide{-.05, .06, .01}, broken{.001, NAN, .002}, single{.001};
  EXPECT_EQ(same_of(little).finding, Finding::reproduced);
  EXPECT_EQ(same_of(much).finding, Finding::not_reproduced);
  EXPECT_EQ(same_of(less).finding, Finding::not_reproduced);
  EXPECT_EQ(larger_of(little).finding, Finding::not_reproduced);
  EXPECT_EQ(larger_of(much).finding, Finding::reproduced);
  EXPECT_EQ(larger_of(less).finding, Finding::not_reproduced);
  for (const auto& d : {wide, broken, single}) {
    EXPECT_EQ(same_of(d).finding, Finding::inconclusive);
    EXPECT_EQ(larger_of(d).finding, Finding::inconclusive);
  }
  EXPECT_NE(same_of({.001, .001}).reason.find("no variance"), std::string::npos);
  EXPECT_EQ(difference_figure("gap", "nats", statistics::test_margin(single, 0.02)).spread,
            std::nullopt);
}

TEST(Rules, PartsThatDisagreeAreInPart) {
  const Judgement yes{Finding::reproduced, Provenance::measured, "a"},
      no{Finding::not_reproduced, Provenance::measured, "b"},
      modelled{Finding::reproduced, Provenance::modelled, "c"},
      open{Finding::inconclusive, Provenance::measured, "d"},
      impossible{Finding::not_testable, Provenance::measured, "e"};
  EXPECT_EQ(all_of(std::vector{yes, yes}).finding, Finding::reproduced);
  EXPECT_EQ(all_of(std::vector{no, no}).finding, Finding::not_reproduced);
  EXPECT_EQ(all_of(std::vector{yes, no}).finding, Finding::in_part);
  EXPECT_EQ(all_of(std::vector{yes, no}).reason, "a; b");
  EXPECT_EQ(all_of(std::vector{yes, open, no}).finding, Finding::inconclusive);
  EXPECT_EQ(all_of(std::vector{yes, open, impossible}).finding, Finding::not_testable);
  EXPECT_EQ(all_of(std::vector{yes, modelled}).provenance, Provenance::modelled);
  EXPECT_EQ(all_of(std::vector{yes, yes}).provenance, Provenance::measured);
}

TEST(Rules, APreviewSaysTheFigureButDecidesNothing) {
  const Judgement preview_of =
      preview({Finding::reproduced, Provenance::measured, "gap 0.1 nats"}, "1 of 5 seeds");
  EXPECT_EQ(preview_of.finding, Finding::inconclusive);
  EXPECT_EQ(preview_of.reason, "1 of 5 seeds; so far gap 0.1 nats");
}

TEST(VerdictText, NamesReadBack) {
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(finding_named(name_of(static_cast<Finding>(i))), static_cast<Finding>(i));
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(provenance_named(name_of(static_cast<Provenance>(i))), static_cast<Provenance>(i));
  EXPECT_FALSE(finding_named("Reproduced"));
  EXPECT_EQ(text_of(known(1, 3)), "ratio 2 (1 to 3, n = 9)");
  EXPECT_EQ(text_of({"bytes", "MB", 0.123456}), "bytes 0.1235 MB");
}

}  // namespace
}  // namespace lockstep::apps
