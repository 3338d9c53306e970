#include "layers/embedding_tables.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/ops.h"
#include "core/memory_state.h"
#include "core/parallel.h"
#include "tests/support/error_of.h"

namespace lockstep::layers {
namespace {

TEST(EmbeddingTables, StartUniformWithinOneOverTheRootOfTheRows) {
  Initialiser init(1);
  const EmbeddingTables tables(init, {10'000, 4}, 16);
  EXPECT_EQ(tables.weight().shape(), (Shape{10'004, 16}));
  EXPECT_EQ(tables.tables(), 2);
  EXPECT_EQ(tables.first_row(1), 10'000);
  EXPECT_EQ(tables.first_row(2), 10'004);
  EXPECT_THROW(tables.first_row(3), UsageError);
  const std::vector<float> v = values(tables.weight());
  double largest = 0, mean = 0, square = 0;
  for (int64_t i = 0; i < 160'000; ++i) {
    largest = std::max(largest, std::abs(double{v[i]}));
    mean += v[i] / 160'000.0;
    square += double{v[i]} * v[i] / 160'000;
  }
  EXPECT_LE(largest, 0.01);
  EXPECT_GT(largest, 0.0099);
  EXPECT_NEAR(mean, 0, 1e-4);
  EXPECT_NEAR(std::sqrt(square), 0.01 / std::sqrt(3.0), 1e-4);
  double small = 0;
  for (int64_t i = 160'000; i < 160'064; ++i) small = std::max(small, std::abs(double{v[i]}));
  EXPECT_GT(small, 0.3) << "the second table has four rows";
}

// Whoever holds a part of a table begins with the same values, whatever the threads.
TEST(EmbeddingTables, InitialValuesAreThoseOfTheirPosition) {
  Initialiser init(3);
  init.constant({1}, 0);
  const EmbeddingTables whole(init, {50, 70}, 12);
  const std::vector<float> v = values(whole.weight());
  Initialiser parts(3);
  parts.constant({1}, 0);
  for (const auto& [rows, first] : {std::pair{50, 0}, std::pair{70, 50}}) {
    const Tensor table = Tensor::empty({rows, 12});
    parts.uniform(table, 1 / std::sqrt(static_cast<double>(rows)));
    EXPECT_EQ(values(table),
              std::vector<float>(v.begin() + first * 12, v.begin() + (first + rows) * 12));
  }
  Initialiser again(3);
  again.constant({1}, 0);
  const Tensor rest = Tensor::empty({30, 12});  // rows 20 to 49 of table 0
  again.uniform(rest, 1 / std::sqrt(50.0), 20 * 12);
  EXPECT_EQ(values(rest), std::vector<float>(v.begin() + 20 * 12, v.begin() + 50 * 12));
  EXPECT_THROW(again.uniform(rest, 1, -2), UsageError);
  for (const auto& [begin, count] : {std::pair{1, 3}, std::pair{2, 1}, std::pair{7, 90}}) {
    const Tensor some = Tensor::empty({count});  // neither begins nor ends with a block of words
    Initialiser(3, 1).uniform(some, 1 / std::sqrt(50.0), begin);
    EXPECT_EQ(values(some), std::vector<float>(v.begin() + begin, v.begin() + begin + count));
  }
  const ThreadBudget one(1);
  Initialiser alone(3);
  alone.constant({1}, 0);
  EXPECT_EQ(values(EmbeddingTables(alone, {50, 70}, 12).weight()), v);
}

TEST(EmbeddingTables, CallTheOperationAndCollectTheGradient) {
  Initialiser init(2);
  const EmbeddingTables tables(init, {5, 3}, 4, {.mode = BagMode::mean, .padding = 1});
  const Tensor rows = from_values<int32_t>({4, 1, 0, 2}),
               offsets = from_values<int32_t>({0, 2, 2, 3, 4});
  const Tensor first = full({2, 4}, 9);
  const Tensor y = tables(rows, offsets, {}, first);
  EXPECT_EQ(y.shape(), (Shape{2, 3, 4}));
  const std::vector<float> v = values(y), w = values(tables.weight());
  EXPECT_EQ(v[0], 9);
  EXPECT_EQ(v[4], (w[4 * 4] + w[1 * 4]) / 2) << "padding is looked up like any other";
  EXPECT_EQ(v[16], 0) << "an empty bag";
  EXPECT_EQ(v[8], w[5 * 4]);
  EXPECT_EQ(v[20], w[7 * 4]);
  autograd::backward(ops::sum(y));
  const SparseGrad g = tables.gradient().coalesce();
  EXPECT_EQ(values<int64_t>(g.rows), (std::vector<int64_t>{4, 5, 7}));
  EXPECT_EQ(values(g.values)[0], 0.5f);
  EXPECT_FALSE(autograd::grad(tables.weight()).defined());
  EXPECT_NE(test::error_of<UsageError>([&] {
              tables(from_values<int32_t>({0, 3}));
            }).find("table 1, sample 0"),
            std::string::npos);
}

TEST(EmbeddingTables, StateIsTheWeights) {
  Initialiser init(2), other(9);
  EmbeddingTables a(init, {5, 3}, 4), b(other, {5, 3}, 4);
  EXPECT_NE(values(a.weight()), values(b.weight()));
  MemoryState kept;
  kept.save([&](StateIo& io) { a.state(io); });
  kept.load([&](StateIo& io) { b.state(io); });
  EXPECT_EQ(values(a.weight()), values(b.weight()));
}

}  // namespace
}  // namespace lockstep::layers
