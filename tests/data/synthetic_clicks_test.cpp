#include "data/synthetic_clicks.h"

#include "data/auc.h"
#include "data/click_loader.h"
#include "data/log_loss.h"

#include "core/allocator.h"
#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"
#include "tests/data/clicks_in.h"

#include <Eigen/Dense>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>

namespace lockstep::data {
namespace {

using Options = SyntheticClicks::Options;

TEST(SyntheticClicks, ASampleIsAFunctionOfSeedAndNumber) {
  for (const int64_t bag : {1, 5}) {
    const Options options{
        .tables = 5, .rows = 100, .dense = 6, .largest_bag = bag, .weighted = bag == 5, .seed = 3};
    const SyntheticClicks a(options), b(options);
    const std::vector<OneClick> all = clicks_of(a, numbers(0, 300));
    const std::vector<int64_t> some{7, 299, 7, 0, 150};
    const std::vector<OneClick> picked = clicks_of(b, some);
    for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(picked[i], all[some[i]]);
    {
      const ThreadBudget two(2);
      EXPECT_EQ(clicks_of(a, numbers(0, 300)), all);
    }
    Options other = options;
    other.seed = 4;
    EXPECT_NE(clicks_of(SyntheticClicks(other), numbers(0, 300)), all);
  }
}

TEST(SyntheticClicks, BagsHaveOneToTheLargestNumberOfRows) {
  const SyntheticClicks source({.tables = 3, .rows = 50, .dense = 0, .largest_bag = 4});
  std::map<size_t, int> sizes;
  for (const OneClick& sample : clicks_of(source, numbers(0, 2000)))
    for (const auto& bag : sample.bags) {
      ++sizes[bag.size()];
      for (const int32_t row : bag) ASSERT_TRUE(row >= 0 && row < 50);
    }
  ASSERT_EQ(sizes.size(), 4u);
  for (const auto& [size, count] : sizes) {
    EXPECT_TRUE(size >= 1 && size <= 4);
    EXPECT_NEAR(count, 1500, 5 * std::sqrt(1500 * 0.75));
  }
}

TEST(SyntheticClicks, WeightsAreBetweenAHalfAndThreeHalvesAndCount) {
  Options options{.tables = 3, .rows = 50, .dense = 0, .largest_bag = 4, .weighted = true};
  options.dense_spread = options.pair_spread = 0;
  const SyntheticClicks source(options);
  double sum = 0, count = 0;
  const auto clicks = clicks_of(source, numbers(0, 2000));
  for (const OneClick& click : clicks)
    for (size_t t = 0; t < 3; ++t) {
      ASSERT_EQ(click.weights[t].size(), click.bags[t].size());
      for (const float weight : click.weights[t]) {
        ASSERT_TRUE(weight >= 0.5f && weight < 1.5f);
        sum += weight;
        count += 1;
      }
    }
  EXPECT_NEAR(sum / count, 1, 5 * std::sqrt(1.0 / 12 / count));
  // Least squares knows no teacher: the logit must be linear in weight / size, row by row.
  std::map<std::pair<size_t, int32_t>, int> columns;
  for (const OneClick& click : clicks)
    for (size_t t = 0; t < 3; ++t)
      for (const int32_t row : click.bags[t])
        columns.emplace(std::pair{t, row}, static_cast<int>(columns.size()));
  Eigen::MatrixXd design = Eigen::MatrixXd::Zero(2000, std::ssize(columns) + 1);
  for (int64_t n = 0; n < 2000; ++n) {
    design(n, std::ssize(columns)) = 1;
    for (size_t t = 0; t < 3; ++t)
      for (size_t i = 0; i < clicks[n].bags[t].size(); ++i)
        design(n, columns[{t, clicks[n].bags[t][i]}]) +=
            clicks[n].weights[t][i] / static_cast<double>(clicks[n].bags[t].size());
  }
  const std::vector<double> logits = source.logits(numbers(0, 2000));
  const auto wanted = Eigen::Map<const Eigen::VectorXd>(logits.data(), 2000);
  const Eigen::VectorXd fitted = design.colPivHouseholderQr().solve(wanted);
  EXPECT_LT((design * fitted - wanted).cwiseAbs().maxCoeff(), 1e-9);
}

TEST(SyntheticClicks, RowsFollowZipfsLawAndDenseFeaturesAreStandardised) {
  constexpr int64_t kSamples = 40'000;
  const SyntheticClicks source({.tables = 2, .rows = 500, .dense = 2, .zipf = 1.1, .seed = 8});
  std::vector<std::vector<double>> counts(2, std::vector<double>(500));
  double sum = 0, squares = 0;
  for (const OneClick& sample : clicks_of(source, numbers(0, kSamples))) {
    for (int t = 0; t < 2; ++t) ++counts[t][sample.bags[t][0]];
    for (const float x : sample.dense) {
      sum += x;
      squares += x * x;
    }
  }
  EXPECT_NEAR(sum / (2 * kSamples), 0, 5 / std::sqrt(2 * kSamples));
  EXPECT_NEAR(squares / (2 * kSamples), 1, 0.02);
  const Zipf law(500, 1.1);
  EXPECT_NE(counts[0], counts[1]) << "tables have their frequent rows in other places";
  for (auto& table : counts) {
    std::ranges::sort(table, std::greater<>());
    for (int k = 0; k < 20; ++k) {
      const double expected = kSamples * law.probability(k);
      EXPECT_NEAR(table[k], expected, 6 * std::sqrt(expected)) << k;
    }
  }
}

// Labels of other samples than those that the best possible is computed from, and plain means.
TEST(SyntheticClicks, TheBestPossibleIsWhatTheTeacherReaches) {
  constexpr int64_t kSamples = 200'000;
  const SyntheticClicks source({.seed = 5});
  const BestPossible best = source.best();
  EXPECT_LT(best.auc_error, 0.003);
  EXPECT_LT(best.log_loss_error, 0.002);
  const std::vector<int64_t> which = numbers(0, kSamples);
  const std::vector<double> logits = source.logits(which);
  ClickBuffer buffer(source.schema(), kSamples);
  source.fill(which, buffer);
  const std::vector<float> labels = values(buffer.batch().labels);
  Auc auc;
  auc.add(std::vector<float>(logits.begin(), logits.end()), labels);
  double loss = 0, squares = 0, positives = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const double one = log_loss(logits[i], labels[i]);
    loss += one / kSamples;
    squares += one * one / kSamples;
    positives += labels[i] / kSamples;
  }
  const double loss_error =
      std::hypot(std::sqrt(squares - loss * loss) / std::sqrt(kSamples), best.log_loss_error);
  EXPECT_NEAR(loss, best.log_loss, 4 * loss_error);
  EXPECT_NEAR(positives, best.positives, 4 * 2 * 0.5 / std::sqrt(131072));
  // Hanley & McNeil's upper bound of the variance of an AUC: A(1-A) / min(P, N).
  const double auc_error = std::hypot(
      std::sqrt(best.auc * (1 - best.auc) / (kSamples * std::min(positives, 1 - positives))),
      best.auc_error);
  EXPECT_NEAR(*auc.value(), best.auc, 4 * auc_error);
  EXPECT_GT(best.auc, 0.75) << "there is something to learn";
  EXPECT_LT(best.auc, 0.95);
}

TEST(SyntheticClicks, EveryPartOfTheTeacherMatters) {
  Options none{.tables = 6, .dense_spread = 0, .row_spread = 0, .pair_spread = 0};
  const SyntheticClicks flat(none);
  EXPECT_NEAR(flat.best(4096).auc, 0.5, 1e-12);
  EXPECT_NEAR(flat.best(4096).log_loss, log_loss(-1, sigmoid(-1)), 1e-12);
  const auto variance = [&](double Options::*part) {
    double sum = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {  // over teachers, too
      Options options = none;
      options.*part = 1;
      options.zipf = 0.3;
      options.seed = seed;
      const std::vector<double> logits = SyntheticClicks(options).logits(numbers(0, 500));
      const double mean = std::accumulate(logits.begin(), logits.end(), 0.0) / 500;
      for (const double x : logits) sum += (x - mean) * (x - mean) / 10'000;
    }
    return sum;
  };
  EXPECT_NEAR(variance(&Options::dense_spread), 1, 0.25);
  EXPECT_NEAR(variance(&Options::row_spread), 1, 0.25);
  EXPECT_NEAR(variance(&Options::pair_spread), 1, 0.25);
}

TEST(SyntheticClicks, MicroBatchesOfRanksAreThoseOfOneRank) {
  const auto source = std::make_shared<SyntheticClicks>(
      Options{.tables = 3, .rows = 50, .dense = 2, .largest_bag = 3, .samples = 50});
  SamplerOptions one{
      .samples = 50, .global_batch = 12, .micro_batches = 4, .order = source->order()};
  ClickLoader whole(source, one, {});
  std::vector<std::vector<OneClick>> expected;
  for (int i = 0; i < 40; ++i) expected.push_back(clicks_in(whole.next(), source->schema()));
  for (int rank = 0; rank < 2; ++rank) {
    SamplerOptions half = one;
    half.ranks = 2;
    half.rank = rank;
    half.micro_batches = 2;
    ClickLoader part(source, half, {.first_step = 3, .ahead = 1, .threads = 2});
    for (int step = 3; step < 10; ++step)
      for (int micro = 0; micro < 2; ++micro) {
        const ClickBatch& batch = part.next();
        EXPECT_EQ(batch.step, step);
        EXPECT_EQ(clicks_in(batch, source->schema()), expected[step * 4 + rank * 2 + micro]);
      }
  }
}

TEST(ClickLoader, ReusesItsBatches) {
  const auto source =
      std::make_shared<SyntheticClicks>(Options{.tables = 3, .rows = 50, .dense = 2});
  ClickLoader loader(
      source, {.samples = 1 << 20, .global_batch = 64, .order = SamplerOptions::Order::sequential},
      {});
  for (int i = 0; i < 20; ++i) loader.next();
  const int64_t before = host_allocator().stats().requests;
  for (int i = 0; i < 50; ++i) loader.next();
  EXPECT_EQ(host_allocator().stats().requests, before);
}

TEST(ClickLoader, RefusesSamplesThatAreNotThere) {
  const auto source = std::make_shared<SyntheticClicks>(Options{.samples = 20});
  EXPECT_THROW(ClickLoader(source, {.samples = 21}, {}), UsageError);
  EXPECT_THROW(ClickLoader(source, {.samples = 0}, {}), UsageError);
  EXPECT_THROW(ClickLoader(nullptr, {.samples = 1}, {}), UsageError);
  EXPECT_THROW(ClickLoader(source, {.samples = 1}, {.first_step = -1}), UsageError);
  EXPECT_THROW(ClickLoader(source, {.samples = 1}, {.ahead = 0}), UsageError);
  EXPECT_THROW(ClickLoader(source, {.samples = 1}, {.threads = 0}), UsageError);
}

// A table of 100 million rows costs nothing to draw from: nothing may grow with it.
TEST(SyntheticClicks, TablesMayBeLarge) {
  const SyntheticClicks source({.tables = 2, .rows = 100'000'000, .dense = 1});
  int32_t largest = 0;
  for (const OneClick& sample : clicks_of(source, numbers(0, 20'000)))
    for (const auto& bag : sample.bags) {
      ASSERT_TRUE(bag[0] >= 0 && bag[0] < 100'000'000);
      largest = std::max(largest, bag[0]);
    }
  EXPECT_GT(largest, 90'000'000);
}

TEST(SyntheticClicks, RefusesImpossibleSettings) {
  EXPECT_THROW(SyntheticClicks({.tables = 0}), UsageError);
  EXPECT_THROW(SyntheticClicks({.rows = 0}), UsageError);
  EXPECT_THROW(SyntheticClicks({.rows = int64_t{1} << 31}), UsageError);
  EXPECT_THROW(SyntheticClicks({.dense = -1}), UsageError);
  EXPECT_THROW(SyntheticClicks({.zipf = -1}), UsageError);
  EXPECT_THROW(SyntheticClicks({.largest_bag = 0}), UsageError);
  EXPECT_THROW(SyntheticClicks({.row_spread = std::nan("")}), UsageError);
  EXPECT_THROW(SyntheticClicks({.samples = int64_t{1} << 41, .held_out = 1}), UsageError);
}

TEST(BestPossible, IsTheExpectationOverAllPairs) {
  std::vector<double> logits;
  const Random random(4, RandomStream::tests);
  for (int i = 0; i < 200; ++i) logits.push_back(static_cast<double>(random.word(i) % 9) - 4);
  double won = 0, pairs = 0, loss = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = sigmoid(logits[i]);
    loss -= (p * std::log(p) + (1 - p) * std::log(1 - p)) / 200;
    for (size_t j = 0; j < logits.size(); ++j) {
      if (i == j) continue;
      const double weight = p * (1 - sigmoid(logits[j]));
      pairs += weight;
      won += weight * (logits[i] > logits[j] ? 1 : logits[i] == logits[j] ? 0.5 : 0);
    }
  }
  const BestPossible best = best_possible(logits);
  EXPECT_NEAR(best.auc, won / pairs, 1e-12);
  EXPECT_NEAR(best.log_loss, loss, 1e-12);
  EXPECT_EQ(best.samples, 200);
  EXPECT_THROW(best_possible(std::vector<double>(63)), UsageError);
}

}  // namespace
}  // namespace lockstep::data
