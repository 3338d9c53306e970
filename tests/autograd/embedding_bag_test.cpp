// The gradient of embedding tables, by rows: against the dense gradient of a composition of plain
// lookups, and against difference quotients.
#include <gtest/gtest.h>

#include "autograd/gradcheck.h"
#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/no_grad.h"
#include "autograd/ops.h"
#include "core/allocator.h"
#include "tests/support/bags.h"
#include "tests/support/error_of.h"
#include "tests/support/tensors.h"

namespace lockstep::autograd {
namespace {

using kernel::Bags;
using test::error_of;
using test::random_bags;
using test::TestTables;
using testing::near;
using testing::randn;

const TestTables& layout() {
  static const TestTables tables({5, 1, 30});
  return tables;
}

struct Tables {
  explicit Tables(int64_t width, int64_t padding = -1)
      : weight(randn({layout().all(), width}, 1)),
        gradient(std::make_shared<TableGradient>(layout().rows, width, padding)) {
    require_grad(weight);
  }
  Tensor operator()(const Bags& bags, const Tensor& first = {}) const {
    return ops::embedding_bag(weight, gradient, bags, first);
  }
  Tensor weight;
  std::shared_ptr<TableGradient> gradient;
};

// As a dense gradient of the whole tensor.
Tensor dense(const SparseGrad& g, const Tensor& like) {
  std::vector<float> all(like.numel());
  for (const auto& [row, values] : test::as_rows(g))
    std::copy(values.begin(), values.end(), all.begin() + row * like.size(1));
  return from_values(all, like.shape());
}

// The same by plain lookups: Σ scale · embedding(table, row), bag by bag, in a graph of its own.
Tensor by_plain_lookups(const Tensor& table, const Bags& bags, const Tensor& dy) {
  const Tensor leaf = from_values(values(table), table.shape());
  require_grad(leaf);
  Tensor loss;
  const int64_t width = table.size(1);
  const std::vector<float> weights =
      bags.weights.defined() ? values(bags.weights) : std::vector<float>();
  const std::vector<float> d = values(dy);
  test::for_each_index(
      bags, layout().count(), [&](int64_t t, int64_t b, int64_t i, int64_t row, int64_t n) {
        const float scale = bags.mode == BagMode::mean ? 1.0f / static_cast<float>(n)
                            : weights.empty()          ? 1.0f
                                                       : weights[i];
        const auto from = d.begin() + ((b * dy.size(1) + t) * width);
        const Tensor up = from_values(std::vector<float>(from, from + width), {1, width});
        const Tensor one =
            ops::embedding(leaf, from_values<int64_t>({layout().first_row[t] + row}));
        const Tensor part = ops::sum(ops::scale(ops::multiply(one, up), scale));
        loss = loss.defined() ? ops::add(loss, part) : part;
      });
  backward(loss);
  return grad(leaf);
}

TEST(EmbeddingBag, GradientsOfAllModesEqualThoseOfPlainLookups) {
  uint32_t key = 0;
  for (BagMode mode : {BagMode::sum, BagMode::mean, BagMode::weighted})
    for (int64_t most : {0, 4}) {
      const Tables tables(6);
      const Bags bags = random_bags<int32_t>(layout(), 8, most, mode, ++key);
      const Tensor dy = randn({8, layout().count(), 6}, key);
      backward(tables(bags), dy);
      EXPECT_EQ(tables.gradient->micro_batches(), 1);
      EXPECT_TRUE(near(dense(tables.gradient->coalesce(), tables.weight),
                       by_plain_lookups(tables.weight, bags, dy), 2e-6));
      EXPECT_EQ(tables.gradient->micro_batches(), 0);
    }
}

// d(sum of y · projection)/dw, by central differences of every element that was looked up.
TEST(EmbeddingBag, GradientsEqualDifferenceQuotients) {
  for (BagMode mode : {BagMode::sum, BagMode::mean, BagMode::weighted}) {
    const Tables tables(3);
    const Bags bags = random_bags<int64_t>(layout(), 4, 3, mode, 77);
    const Tensor dy = randn({4, layout().count(), 3}, 5);
    backward(tables(bags), dy);
    const auto rows = test::as_rows(tables.gradient->coalesce());
    const auto value = [&](int64_t at, float by) {
      const Tensor moved = from_values(values(tables.weight), tables.weight.shape());
      moved.mutable_data<float>()[at] += by;
      const std::vector<float> y = values(ops::embedding_bag(moved, tables.gradient, bags)),
                               d = values(dy);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += double{y[i]} * d[i];
      return sum;
    };
    for (const auto& [row, gradient] : rows)
      for (int64_t c = 0; c < 3; ++c)
        EXPECT_NEAR(gradient[c], (value(row * 3 + c, 1e-2f) - value(row * 3 + c, -1e-2f)) / 2e-2,
                    2e-3);
  }
}

TEST(EmbeddingBag, WhatGoesBeforeTheBagsGetsItsGradient) {
  const Tables tables(4);
  const Bags bags = random_bags<int32_t>(layout(), 3, 2, BagMode::sum, 5);
  EXPECT_EQ(gradcheck([&](const std::vector<Tensor>& x) { return tables(bags, x[0]); },
                      {randn({3, 4}, 1)}),
            "");
  const Tensor x = randn({3, 4}, 2);
  const std::vector<float> y = values(tables(bags, x)), alone = values(tables(bags)), v = values(x);
  for (int64_t b = 0; b < 3; ++b) {
    EXPECT_TRUE(std::equal(v.begin() + b * 4, v.begin() + b * 4 + 4, y.begin() + b * 16));
    EXPECT_TRUE(
        std::equal(alone.begin() + b * 12, alone.begin() + b * 12 + 12, y.begin() + b * 16 + 4));
  }
}

// Promise 3, for rows: k micro-batches are one batch, coalesced once.
TEST(EmbeddingBag, MicroBatchesAreCoalescedTogether) {
  const Tables tables(16);
  std::vector<kernel::BagGradient> parts;
  for (uint32_t micro = 0; micro < 3; ++micro) {
    const Bags bags = random_bags<int32_t>(layout(), 10, 2, BagMode::mean, 100 + micro);
    const Tensor dy = randn({10, layout().count(), 16}, micro);
    backward(tables(bags), dy);
    parts.push_back({dy, bags});
  }
  EXPECT_EQ(tables.gradient->micro_batches(), 3);
  EXPECT_EQ(test::as_rows(tables.gradient->coalesce()), test::naive_coalesced(parts, layout()));
  const SparseGrad nothing = tables.gradient->coalesce();
  EXPECT_EQ(nothing.count(), 0);
  EXPECT_EQ(nothing.values.shape(), (Shape{0, 16}));
}

TEST(EmbeddingBag, NothingLandsAtTheTables) {
  const Tables tables(16);
  const Bags bags = random_bags<int32_t>(layout(), 10, 0, BagMode::sum, 1);
  backward(ops::sum(tables(bags)));
  EXPECT_FALSE(grad(tables.weight).defined());
  {
    const NoGrad off;
    EXPECT_FALSE(requires_grad(tables(bags)));
  }
  tables.gradient->clear();
  EXPECT_EQ(tables.gradient->micro_batches(), 0);
  // Tables that want no gradient get none.
  const Tensor x = randn({10, 16}, 1);
  require_grad(x);
  backward(ops::sum(ops::embedding_bag(tables.weight.detach(), tables.gradient, bags, x)));
  EXPECT_TRUE(grad(x).defined());
  EXPECT_EQ(tables.gradient->micro_batches(), 0);
}

TEST(EmbeddingBag, MemoryDoesNotGrowWithTheTables) {
  const std::vector<int64_t> rows{4'000'000};
  const auto gradient = std::make_shared<TableGradient>(rows, 8);
  const Tensor weight = Tensor::empty({4'000'000, 8});  // 128 MB, of which a few pages are touched
  require_grad(weight);
  for (int64_t r : {0, 77, 3'999'999}) std::fill_n(weight.mutable_data<float>() + r * 8, 8, 1.0f);
  const Bags bags{from_values<int32_t>({77, 3'999'999, 0, 77})};
  host_allocator().reset_peak();
  const int64_t before = host_allocator().stats().live;
  backward(ops::sum(ops::embedding_bag(weight, gradient, bags)));
  EXPECT_EQ(values<int64_t>(gradient->coalesce().rows), (std::vector<int64_t>{0, 77, 3'999'999}));
  EXPECT_LT(host_allocator().stats().peak - before, 8 << 20);
}

TEST(EmbeddingBag, IdsAndGradientsWrittenSinceAreAnError) {
  const Tables tables(4);
  const Tensor rows = from_values<int32_t>({0, 0, 1});
  backward(ops::sum(tables({rows})));
  rows.mutable_data<int32_t>()[0] = 3;
  EXPECT_NE(error_of<UsageError>([&] { tables.gradient->coalesce(); }).find("written in place"),
            std::string::npos);
  EXPECT_THROW(backward(ops::sum([&] {
                 const Tensor y = tables({rows});
                 rows.mutable_data<int32_t>()[0] = 2;
                 return y;
               }())),
               UsageError);
}

TEST(EmbeddingBag, SizesThatDoNotFitAreNamed) {
  const Tables tables(4);
  EXPECT_NE(error_of<UsageError>([&] {
              tables({from_values<int32_t>({0, 0, 1, 1})});
            }).find("for each of 3 tables, got 4"),
            std::string::npos);
  EXPECT_THROW(tables({from_values<int32_t>({0}), from_values<int32_t>({})}), UsageError);
  EXPECT_THROW(tables({from_values<int32_t>({0, 0, 1})}, zeros({1, 5})), UsageError);
  EXPECT_THROW(TableGradient(std::vector<int64_t>{}, 4), UsageError);
  EXPECT_THROW(TableGradient(std::vector<int64_t>{3, 0}, 4), UsageError);
  EXPECT_THROW(TableGradient(std::vector<int64_t>{3}, 0), UsageError);
  EXPECT_THROW(TableGradient(std::vector<int64_t>{3}, 1, -2), UsageError);
}

TEST(KnownFaults, O26_ThePaddingRowOfTables) {
  const Tables tables(4, 0);
  const Bags bags{full({3 * 5000}, 0, DType::i32)};
  const Tensor y = tables(bags);
  EXPECT_EQ(values(y)[0], values(tables.weight)[0]) << "the stored row, not zeros";
  backward(ops::sum(y));
  const SparseGrad g = tables.gradient->coalesce();
  EXPECT_EQ(g.count(), 0) << "no gradient at all, so no step and no decay";
  // The others of the table do get theirs.
  backward(ops::sum(tables({from_values<int32_t>({0, 0, 7})})));
  EXPECT_EQ(values<int64_t>(tables.gradient->coalesce().rows), (std::vector<int64_t>{13}));
}

TEST(Gradcheck, DotInteraction) {
  for (const Shape& shape : {Shape{2, 1, 3}, Shape{2, 5, 3}, Shape{1, 9, 4}})
    EXPECT_EQ(gradcheck([](const std::vector<Tensor>& x) { return ops::dot_interaction(x[0]); },
                        {randn(shape, 3)}),
              "");
}

}  // namespace
}  // namespace lockstep::autograd
