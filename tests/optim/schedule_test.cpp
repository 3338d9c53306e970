#include "optim/schedule.h"

#include "core/check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::optim {
namespace {

using Shape = Schedule::Shape;

TEST(KnownFaults, O37_ScheduleEdges) {
  const Schedule cosine{.shape = Shape::cosine, .base = 1, .warmup = 4, .total = 12};
  const double expected[] = {0.25, 0.5, 0.75, 1, 1};  // CONTRACT: the first update uses 1/warm-up
  for (int64_t step = 0; step < 5; ++step) EXPECT_DOUBLE_EQ(cosine.at(step), expected[step]);
  EXPECT_NEAR(cosine.at(8), 0.5, 1e-15);
  EXPECT_EQ(cosine.at(12), 0);
  EXPECT_EQ(cosine.at(20), 0);
  for (Shape shape : {Shape::constant, Shape::linear, Shape::cosine})
    for (double floor : {0.0, 0.1})
      for (int64_t total : {1, 2, 12})
        for (int64_t warmup : {int64_t{0}, int64_t{1}, total}) {
          if (warmup > total) continue;
          const Schedule s{
              .shape = shape, .base = 1, .floor = floor, .warmup = warmup, .total = total};
          s.check_settings();
          double before = 1;
          for (int64_t step : {0, 1, 2, 3, 11, 12, 13, 100, 1 << 30}) {
            const double rate = s.at(step);
            EXPECT_TRUE(std::isfinite(rate) && rate >= 0 && rate <= 1);
            if (step < warmup && step < total) continue;
            EXPECT_GE(rate, floor);
            EXPECT_LE(rate, before) << "never rises again";
            before = rate;
          }
          const double last = s.at(std::numeric_limits<int64_t>::max());
          EXPECT_EQ(last, shape == Shape::constant ? 1 : floor);
        }
}

TEST(Schedule, LinearFallsToTheFloor) {
  const Schedule s{.shape = Shape::linear, .base = 1, .floor = 0.2, .warmup = 2, .total = 6};
  const double expected[] = {0.5, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2};
  for (int64_t step = 0; step < 8; ++step) EXPECT_NEAR(s.at(step), expected[step], 1e-15);
}

// The recipe of the usual small GPT: 100 warm-up steps to 1e-3, cosine to 1e-4 at 2000.
TEST(Schedule, CosineAgreesWithTheUsualRecipe) {
  const Schedule s{
      .shape = Shape::cosine, .base = 1e-3, .floor = 1e-4, .warmup = 100, .total = 2000};
  for (int64_t step : {100, 777, 1999})
    EXPECT_NEAR(s.at(step), 1e-4 + 0.5 * (1 + std::cos(M_PI * (step - 100) / 1900.0)) * 9e-4,
                1e-15);
  EXPECT_DOUBLE_EQ(s.at(0), 1e-5);
}

TEST(Schedule, RefusesImpossibleSettings) {
  const auto refused = [](const Schedule& s) {
    try {
      s.check_settings();
    } catch (const UsageError&) {
      return true;
    }
    return false;
  };
  EXPECT_TRUE(refused({.shape = Shape::cosine, .total = 0}));
  EXPECT_TRUE(refused({.shape = Shape::cosine, .warmup = 11, .total = 10}));
  EXPECT_TRUE(refused({.shape = Shape::linear, .base = 1, .floor = 2, .total = 10}));
  EXPECT_TRUE(refused({.shape = Shape::linear, .floor = -1, .total = 10}));
  EXPECT_TRUE(refused({.warmup = -1}));
  EXPECT_TRUE(refused({.base = std::nan("")}));
  EXPECT_FALSE(refused({}));
  EXPECT_THROW(Schedule{}.at(-1), UsageError);
  EXPECT_THROW(parse_schedule("exponential"), UsageError);
  EXPECT_EQ(parse_schedule("cosine"), Shape::cosine);
}

}  // namespace
}  // namespace lockstep::optim
