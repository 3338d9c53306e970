#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "apps/compare/claims/amp_gains.h"
#include "apps/compare/claims/fp8_wire.h"
#include "apps/compare/claims/half_accumulation.h"
#include "apps/compare/claims/loss_scale.h"
#include "apps/compare/claims/which_wire.h"

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

TEST(ClaimA4d, Rule) {
  const auto direction = [](std::vector<double> e4m3, std::vector<double> e5m2) {
    return judge_fp8({{"e4m3", 0.5, gap(e4m3)}, {"e5m2", 0.5, gap(e5m2)}}).direction.finding;
  };
  EXPECT_EQ(direction(kNone, kNone), Finding::reproduced);
  EXPECT_EQ(direction(kNone, kHarm), Finding::in_part);
  EXPECT_EQ(direction(kHarm, kHarm), Finding::not_reproduced);
  EXPECT_EQ(direction(kNone, kWide), Finding::inconclusive);
  EXPECT_EQ(direction(kNone, kGone), Finding::inconclusive);
  EXPECT_EQ(direction(kNone, {.001}), Finding::inconclusive);
  const auto size = [](double e4m3, double e5m2) {
    return *judge_fp8({{"e4m3", e4m3, gap(kNone)}, {"e5m2", e5m2, gap(kNone)}}).size;
  };
  EXPECT_EQ(size(0.519, 0.481).finding, Finding::reproduced);
  EXPECT_EQ(size(0.519, 0.521).finding, Finding::in_part);
  EXPECT_EQ(size(0.599, 0.401).finding, Finding::in_part);
  EXPECT_EQ(size(0.601, 0.399).finding, Finding::not_reproduced);
  EXPECT_EQ(size(0.5, NAN).finding, Finding::inconclusive);
  EXPECT_NE(size(0.5, 0.5).reason.find("native FP8: not testable here"), std::string::npos);
}

TEST(ClaimAB1, Rule) {
  const auto judged = [](std::vector<double> losses, std::vector<double> times,
                         std::vector<double> more_losses, std::vector<double> more_times) {
    return judge_which_wire({{2, gap(losses), times}, {32, gap(more_losses), more_times}},
                            {"1Gbit", "100Gbit"});
  };
  Verdict v = judged(kNone, {0.6, 0.95}, kNone, {0.5, 0.8});
  EXPECT_EQ(v.direction.finding, Finding::reproduced);
  EXPECT_EQ(v.size->finding, Finding::reproduced);
  EXPECT_EQ(v.size->provenance, Provenance::modelled);
  v = judged(kNone, {0.6, 0.951}, kNone, {0.5, 0.8});
  EXPECT_EQ(v.size->finding, Finding::in_part);
  EXPECT_EQ(v.size->reason,
            "2 ranks: equivalent, faster at 1Gbit (0.6); "
            "32 ranks: equivalent, faster at 1Gbit (0.5), 100Gbit (0.8)");
  EXPECT_EQ(judged(kNone, {0.96, 1}, kNone, {0.96, 1}).size->finding, Finding::not_reproduced);
  v = judged(kNone, {0.6, 0.6}, kHarm, {0.6, 0.6});
  EXPECT_EQ(v.direction.finding, Finding::in_part);
  EXPECT_EQ(v.size->finding, Finding::in_part);
  v = judged(kHarm, {0.6, 0.6}, kHarm, {0.6, 0.6});
  EXPECT_EQ(v.direction.finding, Finding::not_reproduced);
  EXPECT_EQ(v.size->finding, Finding::not_reproduced);
  v = judged(kNone, {0.6, 0.6}, kWide, {0.6, 1});
  EXPECT_EQ(v.direction.finding, Finding::inconclusive);
  EXPECT_EQ(v.size->finding, Finding::inconclusive);
  EXPECT_EQ(judged(kNone, {0.6, 0.6}, kWide, {1, 1}).size->finding, Finding::in_part);
  EXPECT_EQ(judged(kNone, {0.6, NAN}, kNone, {1, 1}).size->finding, Finding::inconclusive);
}

TEST(ClaimB4e, Rule) {
  const auto judged = [](double memory, std::vector<double> losses, double low, double high,
                         AmpGains::Bf16 bf16 = AmpGains::Bf16::native) {
    return judge_amp_gains(
        {memory, gap(losses), {"time", "", (low + high) / 2, Interval{low, high}, 6}, bf16});
  };
  const auto direction = [&](double memory, std::vector<double> losses) {
    return judged(memory, losses, 0.9, 0.9).direction.finding;
  };
  EXPECT_EQ(direction(0.9, kNone), Finding::reproduced);
  EXPECT_EQ(direction(0.91, kNone), Finding::in_part);
  EXPECT_EQ(direction(1.01, kNone), Finding::in_part);
  EXPECT_EQ(direction(0.9, kHarm), Finding::in_part);
  EXPECT_EQ(direction(1.01, kHarm), Finding::not_reproduced);
  EXPECT_EQ(direction(0.9, kWide), Finding::inconclusive);
  EXPECT_EQ(direction(NAN, kNone), Finding::inconclusive);
  const auto size = [&](double low, double high) {
    return judged(0.9, kNone, low, high).size->finding;
  };
  EXPECT_EQ(size(0.7, 0.95), Finding::reproduced);
  EXPECT_EQ(size(0.9, 0.96), Finding::in_part);
  EXPECT_EQ(size(0.9, 1.01), Finding::inconclusive);
  EXPECT_EQ(size(1.01, 1.1), Finding::not_reproduced);
  EXPECT_EQ(judged(0.9, kNone, 0.7, 0.8, AmpGains::Bf16::emulated).size->finding,
            Finding::not_testable);
}

TEST(ClaimB4c, Rule) {
  const auto judged = [](std::vector<HalfAccumulation> points) {
    return judge_half_accumulation(points);
  };
  const Interval fine{0.01, 0.1}, rounds{0.11, 0.2}, wide{0.09, 0.11};
  Verdict v = judged({{4, fine, gap(kNone)}, {8, rounds, {}}, {32, rounds, {}}});
  EXPECT_EQ(v.direction.finding, Finding::reproduced);
  EXPECT_EQ(v.size->finding, Finding::reproduced);
  v = judged({{4, fine, gap(kNone)}, {8, fine, gap(kHarm)}, {32, fine, {}}});
  EXPECT_EQ(v.size->finding, Finding::reproduced);
  EXPECT_EQ(judged({{4, fine, {}}, {5, rounds, {}}}).size->finding, Finding::reproduced);
  EXPECT_EQ(judged({{4, rounds, {}}, {32, rounds, {}}}).size->finding, Finding::in_part);
  v = judged({{8, fine, {}}, {12, rounds, {}}});
  EXPECT_EQ(v.direction.finding, Finding::reproduced);
  EXPECT_EQ(v.size->finding, Finding::in_part);
  v = judged({{8, fine, gap(kNone)}, {32, fine, gap(kNone)}, {64, rounds, {}}});
  EXPECT_EQ(v.direction.finding, Finding::not_reproduced);
  EXPECT_EQ(v.size->finding, Finding::not_reproduced);
  EXPECT_EQ(judged({{8, wide, {}}, {32, rounds, {}}}).direction.finding, Finding::inconclusive);
  EXPECT_EQ(judged({{8, fine, gap(kWide)}, {32, fine, {}}}).direction.finding,
            Finding::inconclusive);
  EXPECT_EQ(judged({{8, fine, gap({.001})}, {32, fine, {}}}).direction.finding,
            Finding::inconclusive);
  EXPECT_EQ(judged({{8, {NAN, NAN}, {}}, {32, fine, {}}}).direction.finding, Finding::inconclusive);
  EXPECT_EQ(judged({{8, fine, {}}}).direction.finding, Finding::inconclusive);
}

TEST(ClaimB4c, MicroGradientsAreRoundedAndAddedInTheirType) {
  const auto mean = [](DType dtype, Scaled scaled, Division division, std::vector<float> micro) {
    HalfSum sum(dtype, scaled, division, static_cast<int64_t>(micro.size()), 1);
    for (const float gradient : micro) sum.add({&gradient, 1});
    return sum.mean()[0];
  };
  using enum Scaled;
  using enum Division;
  // Above 2048 fp16 has even integers only: ones are lost one by one.
  EXPECT_EQ(mean(DType::f16, none, after, {2048, 1, 1, 1}), 512);
  EXPECT_EQ(mean(DType::f16, none, after, {2, 1, 1, 4}), 2);
  EXPECT_EQ(mean(DType::f16, none, before, {2, 1, 1, 4}), 2);
  EXPECT_EQ(mean(DType::bf16, none, after, {256, 1, 1, 2}), 64.5);
  // 2^-26 is nothing in fp16, unless it is scaled; so is what was not scaled beside what was.
  const float small = 0x1p-26f;
  EXPECT_EQ(mean(DType::f16, none, after, {small, small}), 0);
  EXPECT_EQ(mean(DType::f16, all, after, {small, small}), 0x1p-26);
  EXPECT_EQ(mean(DType::f16, last, before, {1, 1}), (0.5 + 512) / 1024);
  EXPECT_TRUE(std::isinf(mean(DType::f16, all, after, {63, 63})));
  EXPECT_EQ(mean(DType::f16, all, before, {63, 63}), 63);
}

}  // namespace
}  // namespace lockstep::apps
