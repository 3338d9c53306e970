#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "apps/compare/claim.h"
#include "apps/compare/claims/averaged_gradient.h"
#include "apps/compare/claims/counted_twice.h"
#include "apps/compare/claims/fp16_sums.h"
#include "apps/compare/claims/fp16_traffic.h"
#include "apps/compare/claims/fp16_wire.h"
#include "apps/compare/claims/gpt_gradients.h"
#include "apps/compare/claims/gradient_traffic.h"
#include "apps/compare/claims/no_waiting.h"
#include "apps/compare/claims/norm_splits.h"
#include "apps/compare/claims/sleeping_ranks.h"
#include "apps/compare/claims/slower_than_one.h"
#include "apps/compare/claims/stochastic_rounding.h"
#include "apps/compare/claims/straggler.h"
#include "apps/compare/claims/micro_batches.h"
#include "apps/compare/claims/models.h"
#include "apps/compare/claims/tuning.h"
#include "apps/compare/claims/waiting.h"
#include "tests/apps/program.h"
#include "tests/support/temp_folder.h"

/// Rules fed with made-up figures on both sides of each threshold.
namespace lockstep::apps {
namespace {

TEST(Claims, AskForRunsThatTheCommandsTake) {
  ASSERT_FALSE(claims().empty());
  for (const Claim& claim : claims())
    for (const Extent extent : {Extent::quick, Extent::standard, Extent::full}) {
      const Setting setting = claim.setting(extent, 0, "synthetic");
      const Needs needs = claim.ask(setting);
      EXPECT_FALSE(needs.runs.empty() && needs.experiments.empty()) << claim.id;
      for (const RunRequest& run : needs.runs) EXPECT_NO_THROW(canonical(run)) << claim.id;
    }
}

TEST(Claims, SayWhatTheyAreAndHowTheyAreJudged) {
  std::set<std::string> ids;
  for (const Claim& claim : claims()) {
    EXPECT_TRUE(ids.insert(claim.id).second) << claim.id;
    for (const std::string* text : {&claim.source, &claim.statement, &claim.done, &claim.rule})
      EXPECT_GT(text->size(), 8u) << claim.id;
    EXPECT_TRUE(claim.decides(claim.setting(Extent::standard, 0, ""))) << claim.id;
    EXPECT_TRUE(claim.decides(claim.setting(Extent::full, 0, ""))) << claim.id;
  }
}

TEST(Claims, DecideNothingWithLessThanTheirRuleNeeds) {
  const Claim claim{
      .id = "X",
      .needed = {.steps = 100, .seeds = 3},
      .quick = {.steps = 10, .seeds = 3},
      .full = {.steps = 50, .seeds = 5},
      .judge = [](const Setting&, Results&) {
        return Outcome{.verdict = {{Finding::reproduced, Provenance::measured, "gap 1"},
                                   Judgement{Finding::not_reproduced, Provenance::measured, "b"}}};
      }};
  const Setting quick = claim.setting(Extent::quick, 0, ""),
                standard = claim.setting(Extent::standard, 0, ""),
                full = claim.setting(Extent::full, 0, ""),
                few = claim.setting(Extent::standard, 2, "");
  EXPECT_FALSE(claim.decides(quick));
  EXPECT_TRUE(claim.decides(standard));
  EXPECT_EQ(full.steps, 100);
  EXPECT_EQ(full.seeds.size(), 5u);
  EXPECT_FALSE(claim.decides(few));
  for (const int64_t tuning : full.tuning_seeds)
    EXPECT_EQ(std::count(full.seeds.begin(), full.seeds.end(), tuning), 0);

  const test::TempFolder folder;
  RunStore none(folder / "out");
  const Verdict preview = claim.outcome(quick, none).verdict;
  EXPECT_EQ(preview.direction.finding, Finding::inconclusive);
  EXPECT_EQ(preview.size->finding, Finding::inconclusive);
  EXPECT_EQ(preview.direction.reason,
            "the rule needs 100 steps and 3 seeds, this had 10 and 3; so far gap 1");
  EXPECT_EQ(claim.outcome(standard, none).verdict.direction.finding, Finding::reproduced);
}

TEST(ClaimA2a, GigabytesAreThoseOfTheFormulas) {
  const GradientTraffic t = traffic_of_7b(1);
  EXPECT_DOUBLE_EQ(t.gradients, 28);
  EXPECT_DOUBLE_EQ(t.ring_card, 49);
  EXPECT_DOUBLE_EQ(t.ring_all, 392);
  EXPECT_DOUBLE_EQ(t.direct_card, 196);
  EXPECT_DOUBLE_EQ(t.direct_all, 1568);
  EXPECT_DOUBLE_EQ(t.once, 224);
}

TEST(ClaimA2a, Rule) {
  GradientTraffic t = traffic_of_7b(1.009);
  EXPECT_EQ(judge_traffic(t).direction.finding, Finding::reproduced);
  EXPECT_EQ(judge_traffic(t).size->finding, Finding::in_part);
  t.ring_all = 224 * 1.049;
  EXPECT_EQ(judge_traffic(t).size->finding, Finding::reproduced);
  t.ring_all = t.once = 224 * 1.051;
  EXPECT_EQ(judge_traffic(t).size->finding, Finding::not_reproduced);
  t.gradients = 32;
  EXPECT_EQ(judge_traffic(t).direction.finding, Finding::in_part);
  t = traffic_of_7b(1.011);
  EXPECT_EQ(judge_traffic(t).direction.finding, Finding::inconclusive);
  EXPECT_EQ(judge_traffic(t).size->finding, Finding::inconclusive);
}

TEST(ClaimA4a, Rule) {
  EXPECT_EQ(judge_fp16_bytes(0.519).finding, Finding::reproduced);
  EXPECT_EQ(judge_fp16_bytes(0.521).finding, Finding::in_part);
  EXPECT_EQ(judge_fp16_bytes(0.61).finding, Finding::not_reproduced);
  EXPECT_EQ(judge_fp16_time(0.549).finding, Finding::reproduced);
  EXPECT_EQ(judge_fp16_time(0.551).finding, Finding::in_part);
  EXPECT_EQ(judge_fp16_time(0.81).finding, Finding::not_reproduced);
  EXPECT_EQ(judge_fp16_time(0.5).provenance, Provenance::modelled);
}

TEST(ClaimA4b, Rule) {
  EXPECT_EQ(judge_autocast_bytes(0.5).finding, Finding::reproduced);
  EXPECT_EQ(judge_autocast_bytes(0.59).finding, Finding::in_part);
  EXPECT_EQ(judge_autocast_bytes(1).finding, Finding::not_reproduced);
}

Figure ratio(double low, double high) {
  return {"ratio", "", (low + high) / 2, Interval{low, high}, 16};
}

TEST(ClaimB1b, Rule) {
  EXPECT_EQ(judge_straggler(ratio(1.28, 1.32)).direction.finding, Finding::reproduced);
  EXPECT_EQ(judge_straggler(ratio(1.28, 1.32)).size->finding, Finding::reproduced);
  EXPECT_EQ(judge_straggler(ratio(1.26, 1.32)).size->finding, Finding::in_part);
  EXPECT_EQ(judge_straggler(ratio(1.38, 1.41)).size->finding, Finding::inconclusive);
  EXPECT_EQ(judge_straggler(ratio(1.41, 1.44)).size->finding, Finding::not_reproduced);
  EXPECT_EQ(judge_straggler(ratio(1.06, 1.10)).direction.finding, Finding::reproduced);
  EXPECT_EQ(judge_straggler(ratio(1.03, 1.10)).direction.finding, Finding::in_part);
  EXPECT_EQ(judge_straggler(ratio(0.99, 1.01)).direction.finding, Finding::not_reproduced);
  EXPECT_EQ(judge_straggler({"ratio", "", 1.3, {}, 2}).size->finding, Finding::inconclusive);
}

TEST(ClaimB1b, AStepLastsAsLongAsTheLongestSleep) {
  const auto took = sleep_together(
      3, 2, [](int rank, int64_t step) { return rank == 1 && step == 1 ? 0.03 : 0.001; });
  ASSERT_EQ(took.size(), 2u);
  EXPECT_LT(took[0], 0.03);
  EXPECT_GE(took[1], 0.03);
}

TEST(ClaimB1c, OrderStatisticsAreThoseOfTheTables) {
  EXPECT_NEAR(expected_exponential(1, 0.3), 1, 1e-12);
  EXPECT_NEAR(expected_exponential(4, 1), 25 / 12.0, 1e-12);
  EXPECT_NEAR(expected_lognormal(1, 0.3), 1, 1e-6);
  // Largest of two: 2·Φ(σ/√2) in units of the mean.
  EXPECT_NEAR(expected_lognormal(2, 0.3), 2 * std::erfc(-0.15) / 2, 1e-6);
  // The normal's own, 0.84628 of three, from a small σ.
  EXPECT_NEAR((expected_lognormal(3, 1e-4) - 1) / 1e-4, 0.84628, 1e-3);
  EXPECT_NEAR(expected_pareto(1, 3), 1, 1e-12);
  EXPECT_NEAR(expected_pareto(2, 2), 4 / 3.0, 1e-12);  // U^-1/2 / 2: 2·B(2, 1/2)/2
}

TEST(ClaimB1c, Rule) {
  Waiting laws{{{1, 1.5, 2}, {1, 1.4, 1.9}}, {{1, 1.5, 2}, {1, 1.4, 1.9}}};
  const auto size = [&] { return judge_waiting(ratio(1.4, 1.5), laws).size->finding; };
  EXPECT_EQ(size(), Finding::reproduced);
  laws.modelled[0][2] = 2 * 1.019;
  laws.modelled[1][2] = 1.9 * 1.049;
  EXPECT_EQ(size(), Finding::reproduced);
  laws.modelled[0][2] = 2 * 1.021;
  EXPECT_EQ(size(), Finding::not_reproduced);
  laws.modelled[0][2] = 2;
  laws.modelled[1][2] = 1.9 * 1.051;
  EXPECT_EQ(size(), Finding::not_reproduced);
  laws = {{{1, 1}, {1, 1}}, {{1, 1}, {1, 1}}};
  EXPECT_EQ(size(), Finding::not_reproduced);
  laws.modelled[0][1] = NAN;
  EXPECT_EQ(size(), Finding::not_reproduced);
  EXPECT_EQ(judge_waiting(ratio(1.11, 1.3), laws).direction.finding, Finding::reproduced);
  EXPECT_EQ(judge_waiting(ratio(1.05, 1.3), laws).direction.finding, Finding::in_part);
  EXPECT_EQ(judge_waiting(ratio(1.00, 1.3), laws).direction.finding, Finding::inconclusive);
  EXPECT_EQ(judge_waiting(ratio(0.98, 1.01), laws).direction.finding, Finding::not_reproduced);
}

TEST(ClaimB0, Rule) {
  std::vector<SpeedUp> grid{{1, 0.1, 1, 0}, {2, 0.1, 1.01, 0.6}, {8, 0.1, 2, 0.3}};
  EXPECT_EQ(judge_speed_ups(grid).direction.finding, Finding::not_reproduced);
  grid[1].times = 0.99;
  EXPECT_EQ(judge_speed_ups(grid).direction.finding, Finding::reproduced);
  EXPECT_EQ(judge_speed_ups(grid).direction.provenance, Provenance::modelled);
  EXPECT_EQ(judge_speed_ups(grid).size->finding, Finding::reproduced);
  grid[2] = {8, 0.1, 0.9, 0.49};
  EXPECT_EQ(judge_speed_ups(grid).size->finding, Finding::in_part);
  grid[1].communicating = 0.5;
  EXPECT_EQ(judge_speed_ups(grid).size->finding, Finding::not_reproduced);
}

TEST(ClaimB1a, Rule) {
  EXPECT_EQ(judge_averaging(9e-7, ratio(-1.09, -0.91)).direction.finding, Finding::reproduced);
  EXPECT_EQ(judge_averaging(2e-6, ratio(-1.09, -0.91)).direction.finding, Finding::in_part);
  EXPECT_EQ(judge_averaging(2e-4, ratio(-1.09, -0.91)).direction.finding, Finding::not_reproduced);
  EXPECT_EQ(judge_averaging(NAN, ratio(-1.09, -0.91)).direction.finding, Finding::inconclusive);
  EXPECT_EQ(judge_averaging(0, ratio(-1.09, -0.91)).size->finding, Finding::reproduced);
  EXPECT_EQ(judge_averaging(0, ratio(-1.12, -0.95)).size->finding, Finding::in_part);
  EXPECT_EQ(judge_averaging(0, ratio(-0.72, -0.60)).size->finding, Finding::inconclusive);
  EXPECT_EQ(judge_averaging(0, ratio(-0.65, -0.55)).size->finding, Finding::not_reproduced);
}

TEST(ClaimB1a, GradientsAreMeansOverTheTokensOfTheirWindows) {
  GptGradients model({.text = "synthetic"});
  const std::vector<float> a = model.mean(0, 2), b = model.mean(2, 2), both = model.mean(0, 4);
  std::vector<float> mean(a.size());
  for (size_t i = 0; i < a.size(); ++i) mean[i] = (a[i] + b[i]) / 2;
  EXPECT_LT(relative_difference(mean, both), 1e-6);
  EXPECT_GT(relative_difference(a, b), 0.1);
  EXPECT_EQ(model.mean(0, 2), a);
}

TEST(ClaimA2e, Rule) {
  const CodeMoments good{.element_sigmas = 4.9, .along_sigmas = 4.9, .variance_over_theory = 1.049};
  EXPECT_EQ(judge_unbiased({good, good}).direction.finding, Finding::reproduced);
  EXPECT_EQ(judge_unbiased({good, good}).size->finding, Finding::reproduced);
  CodeMoments bad = good;
  bad.element_sigmas = 5.1;
  EXPECT_EQ(judge_unbiased({good, bad}).direction.finding, Finding::not_reproduced);
  bad = good;
  bad.along_sigmas = 5.1;
  EXPECT_EQ(judge_unbiased({bad, good}).direction.finding, Finding::not_reproduced);
  bad.variance_over_theory = 0.949;
  EXPECT_EQ(judge_unbiased({bad, good}).size->finding, Finding::not_reproduced);
  bad = {.element_sigmas = NAN, .variance_over_theory = NAN};
  EXPECT_EQ(judge_unbiased({good, bad}).direction.finding, Finding::inconclusive);
  EXPECT_EQ(judge_unbiased({good, bad}).size->finding, Finding::inconclusive);
}

TEST(ClaimA2e, MomentsTellABiasedCodeFromAnUnbiasedOne) {
  std::vector<float> x(512);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i % 101) - 40);
  const CodeMoments fair = moments_of("qsgd:bits=3,block=512", x, 2000, 1 / 3.0);
  EXPECT_LT(fair.element_sigmas, 5);
  EXPECT_NEAR(fair.variance_over_theory, 1, 0.02);
  const CodeMoments nearest = moments_of("int8:block=512,bits=3", x, 2000, 1 / 3.0);
  EXPECT_GT(nearest.element_sigmas, 20);
  EXPECT_GT(nearest.relative_bias, 10 * fair.relative_bias);
}

TEST(ClaimA1c, Rule) {
  const statistics::BySeed right{{1, 2.0}, {2, 2.1}, {3, 2.05}},
      worse{{1, 2.5}, {2, 2.62}, {3, 2.56}}, same{{1, 2.001}, {2, 2.1}, {3, 2.051}},
      gone{{1, NAN}, {2, NAN}, {3, NAN}}, some{{1, NAN}, {2, 2.6}, {3, 2.5}};
  const auto direction = [&](const statistics::BySeed& mixed, const statistics::BySeed& sum) {
    return judge_counted_twice(right, {146, mixed}, {8, sum}).direction.finding;
  };
  EXPECT_EQ(direction(gone, worse), Finding::reproduced);
  EXPECT_EQ(direction(worse, same), Finding::in_part);
  EXPECT_EQ(direction(same, same), Finding::not_reproduced);
  EXPECT_EQ(direction(some, worse), Finding::inconclusive);
  EXPECT_EQ(judge_counted_twice(gone, {146, gone}, {8, worse}).direction.finding,
            Finding::inconclusive);
  const auto size = [&](double mixed, double sum) {
    return judge_counted_twice(right, {mixed, worse}, {sum, worse}).size->finding;
  };
  EXPECT_EQ(size(8.39, 8), Finding::reproduced);
  EXPECT_EQ(size(8.41, 7.61), Finding::in_part);
  EXPECT_EQ(size(146, 7.59), Finding::not_reproduced);
  EXPECT_EQ(size(NAN, 8), Finding::inconclusive);
}

TEST(ClaimA3a, Rule) {
  const NoWaiting faster{"a", 1.05, 0.9, 0.8}, slower{"b", 1.04, 0.9, 0.8},
      idle{"c", 1.2, 0.8, 0.8};
  EXPECT_EQ(judge_no_waiting({faster, faster}).finding, Finding::reproduced);
  EXPECT_EQ(judge_no_waiting({faster, slower}).finding, Finding::in_part);
  EXPECT_EQ(judge_no_waiting({slower, idle}).finding, Finding::not_reproduced);
  EXPECT_EQ(judge_no_waiting({faster}).provenance, Provenance::modelled);
}

TEST(ClaimB3b, Rule) {
  const auto split = [](double losses, std::vector<double> points) {
    return NormSplit{losses, statistics::test_margin(points, 0.5)};
  };
  const std::vector<double> lower{-1.3, -1.6, -2.1}, equal{-.1, .05, .1}, wide{-1.5, .7, -.2},
      one{-1.5};
  const auto judged = [&](const NormSplit& batch, double sync, double frozen) {
    return judge_norm_splits(batch, split(sync, equal), split(frozen, equal)).finding;
  };
  EXPECT_EQ(judged(split(2e-3, lower), 9e-6, 9e-6), Finding::reproduced);
  EXPECT_EQ(judged(split(2e-3, lower), 1.1e-4, 9e-6), Finding::in_part);
  EXPECT_EQ(judged(split(2e-3, lower), 2e-5, 9e-6), Finding::inconclusive);
  EXPECT_EQ(judged(split(2e-3, lower), 9e-6, 1.1e-4), Finding::in_part);
  EXPECT_EQ(judged(split(9e-5, lower), 1.1e-4, 1.1e-4), Finding::not_reproduced);
  EXPECT_EQ(judged(split(2e-3, equal), 9e-6, 9e-6), Finding::in_part);
  EXPECT_EQ(judged(split(2e-3, wide), 9e-6, 9e-6), Finding::inconclusive);
  EXPECT_EQ(judged(split(2e-3, one), 9e-6, 9e-6), Finding::inconclusive);
  EXPECT_EQ(judged(split(NAN, lower), 9e-6, 9e-6), Finding::inconclusive);
  EXPECT_EQ(judged(split(2e-3, lower), NAN, 9e-6), Finding::inconclusive);
}

TEST(ClaimB4a, Rule) {
  const auto dose = [](int shift, double zeros, std::vector<double> gaps) {
    return Dose{shift, zeros, statistics::test_margin(gaps, 0.02)};
  };
  const std::vector<double> none{.001, .002, .0015}, harm{.5, .52, .51}, wide{-.05, .08, .01},
      gone{NAN, NAN, NAN};
  const auto judged = [&](std::vector<Dose> doses) { return judge_fp16_wire(doses); };
  Verdict v = judged({dose(0, 0.01, none), dose(8, 0.7, none), dose(20, 1, harm)});
  EXPECT_EQ(v.direction.finding, Finding::not_reproduced);
  EXPECT_EQ(v.size->finding, Finding::reproduced);
  v = judged({dose(0, 0.01, harm), dose(8, 0.7, harm), dose(20, 1, gone)});
  EXPECT_EQ(v.direction.finding, Finding::reproduced);
  EXPECT_EQ(v.size->finding, Finding::reproduced);
  v = judged({dose(0, 0.01, wide), dose(8, 0.3, harm), dose(20, 0.7, none)});
  EXPECT_EQ(v.direction.finding, Finding::inconclusive);
  EXPECT_EQ(v.size->finding, Finding::in_part);
  EXPECT_EQ(judged({dose(0, 0, none), dose(20, 1, none)}).size->finding, Finding::not_reproduced);
  EXPECT_EQ(judged({dose(0, 0, none), dose(20, 1, wide)}).size->finding, Finding::inconclusive);
  EXPECT_EQ(judged({dose(0, 0, {.1}), dose(20, 1, {.1})}).size->finding, Finding::inconclusive);
}

statistics::PairedTest gap(std::vector<double> differences) {
  return statistics::test_margin(differences, 0.02);
}

TEST(ClaimA1a, Rule) {
  const statistics::PairedTest none = gap({.001, .002, .0015}), harm = gap({.5, .52, .51});
  const MicroBatches good{1e-7, 1e-6, none, 0.2};
  EXPECT_EQ(judge_micro_batches(good).direction.finding, Finding::reproduced);
  EXPECT_EQ(judge_micro_batches(good).size->finding, Finding::reproduced);
  const auto direction = [&](auto change) {
    MicroBatches m = good;
    change(m);
    return judge_micro_batches(m).direction.finding;
  };
  EXPECT_EQ(direction([](auto& m) { m.gradient = 1.1e-6; }), Finding::in_part);
  EXPECT_EQ(direction([](auto& m) { m.worst_tensor = 1.1e-5; }), Finding::in_part);
  EXPECT_EQ(direction([&](auto& m) { m.loss = harm; }), Finding::in_part);
  EXPECT_EQ(direction([&](auto& m) { m.loss = gap({.001}); }), Finding::inconclusive);
  EXPECT_EQ(direction([&](auto& m) { m = {1e-3, 1e-3, harm, 0.2}; }), Finding::not_reproduced);
  const auto size = [&](double memory) {
    return judge_micro_batches({1e-7, 1e-6, none, memory}).size->finding;
  };
  EXPECT_EQ(size(0.26), Finding::in_part);
  EXPECT_EQ(size(0.76), Finding::not_reproduced);
  EXPECT_EQ(size(NAN), Finding::inconclusive);
}

TEST(ClaimB4d, SumsAreRoundedAfterEveryAdditionInTheOrderOfTheCollective) {
  // Above 2048 every second integer is an fp16 number: ones are lost one by one, but not in pairs.
  const std::vector<std::vector<float>> ranks{{2048}, {1}, {1}, {1}};
  EXPECT_EQ(sum_in(DType::f16, SumOrder::ring, ranks), std::vector{2048.0f});
  EXPECT_EQ(sum_in(DType::f16, SumOrder::tree, ranks), std::vector{2050.0f});
  EXPECT_EQ(sum_in(DType::f32, SumOrder::ring, ranks), std::vector{2051.0f});
  // Each of four chunks begins at another rank: the second is 1 + 1 + 1 + 2048, and 2051 is a tie.
  const std::vector<std::vector<float>> chunks{
      {2048, 2048, 2048, 2048}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}};
  EXPECT_EQ(sum_in(DType::f16, SumOrder::ring, chunks),
            (std::vector{2048.0f, 2052.0f, 2052.0f, 2048.0f}));
  // Three ranks in a tree: (a + b) + c.
  EXPECT_EQ(sum_in(DType::bf16, SumOrder::tree, {{256}, {1}, {1}}), std::vector{256.0f});
  EXPECT_TRUE(std::isinf(sum_in(DType::f16, SumOrder::ring, {{40000}, {40000}})[0]));
}

TEST(ClaimB4d, Rule) {
  const statistics::PairedTest none = gap({.001, .002}), harm = gap({.5, .51});
  EXPECT_EQ(judge_accumulated_error(ratio(0.26, 0.5), harm).direction.finding, Finding::reproduced);
  EXPECT_EQ(judge_accumulated_error(ratio(0.2, 0.5), harm).direction.finding, Finding::in_part);
  EXPECT_EQ(judge_accumulated_error(ratio(0.0, 0.09), harm).direction.finding,
            Finding::not_reproduced);
  EXPECT_EQ(judge_accumulated_error(ratio(0.3, 0.5), harm).size->finding, Finding::reproduced);
  EXPECT_EQ(judge_accumulated_error(ratio(0.3, 0.5), none).size->finding, Finding::not_reproduced);
}

TEST(ClaimA4c, Rule) {
  const statistics::PairedTest none = gap({.001, .002}), harm = gap({.5, .51});
  EXPECT_EQ(judge_half_sums({true, false, harm}).finding, Finding::reproduced);
  EXPECT_EQ(judge_half_sums({true, true, harm}).finding, Finding::in_part);
  EXPECT_EQ(judge_half_sums({false, false, harm}).finding, Finding::in_part);
  EXPECT_EQ(judge_half_sums({true, false, none}).finding, Finding::in_part);
  EXPECT_EQ(judge_half_sums({false, false, none}).finding, Finding::not_reproduced);
  EXPECT_EQ(judge_half_sums({true, false, gap({.5, NAN})}).finding, Finding::inconclusive);
}

TEST(ClaimTuning, RatesThatDivergeAreNoCandidates) {
  const test::TempFolder folder;
  RunStore store(folder / "out");
  const Setting setting{.steps = 3, .seeds = {1}, .text = "synthetic", .tuning_seeds = {1001}};
  const RunRequest arm = tiny_gpt(1, 3).with("--optimizer", "sgd");
  const double rates[] = {0, 0.1, 1e30};
  for (const RunRequest& run : tuning_runs(arm, rates, setting)) store.ask(run);
  store.work({.talk = RunStore::Options::Talk::quiet, .program = LOCKSTEP_PROGRAM});
  EXPECT_EQ(best_rate(arm, rates, setting, store), 0.1);
  EXPECT_TRUE(std::isnan(best_rate(arm, std::span(rates).last(1), setting, store)));
}

}  // namespace
}  // namespace lockstep::apps
