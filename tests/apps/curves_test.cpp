#include "apps/report/curves.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::apps {
namespace {

TEST(Curves, FallFromTheUpperLeftToTheLowerRight) {
  EXPECT_EQ(draw_curves({{'a', {3, 2, 1}}}, 3, 3),
            "   3.0000 |a  \n"
            "          | a \n"
            "   1.0000 |  a\n"
            "          +---\n"
            "     step  1 3\n");
}

TEST(Curves, CoincidingPointsAreStars) {
  const std::string text = draw_curves({{'a', {2, 1}}, {'b', {2, 2}}}, 2, 2);
  EXPECT_EQ(text.substr(0, text.find("+")), "   2.0000 |*b\n   1.0000 | a\n          ");
}

TEST(Curves, ValuesThatAreNotFiniteAndMissingOnesAreLeftOut) {
  EXPECT_EQ(draw_curves({}, 10, 3), "");
  EXPECT_EQ(draw_curves({{'a', {NAN, INFINITY}}}, 10, 3), "");
  const std::string text = draw_curves({{'a', {1, NAN, 1}}, {'b', {1}}}, 3, 1);
  EXPECT_EQ(text.substr(0, text.find('\n')), "   1.0000 |* a");
}

TEST(Curves, TheLargestDifferenceIsOverAllPairsAndSharedSteps) {
  EXPECT_EQ(largest_difference({{'a', {1, 2, 3}}, {'b', {1, 2.5}}, {'c', {1.25, 2}}}), 0.5);
  EXPECT_TRUE(std::isnan(largest_difference({{'a', {1}}})));
  EXPECT_EQ(largest_difference({{'a', {1, NAN}}, {'b', {1, 2}}}), 0);
}

}  // namespace
}  // namespace lockstep::apps
