#include "apps/recommender/dlrm.h"

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/no_grad.h"
#include "autograd/ops.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::apps {
namespace {

using lockstep::testing::Floats;
using lockstep::testing::near;
using lockstep::testing::uniform;

const DlrmConfig kTiny{.dense = 3, .table_rows = {7, 5}, .dim = 4, .bottom = {6, 5}, .top = {9}};

struct Batch {
  Tensor dense, rows, offsets, weights, labels;
};
// Five samples, a row of each table.
Batch batch_of_rows() {
  return {.dense = uniform({5, 3}, 1, -1, 1),
          .rows = from_values(std::vector<int32_t>{6, 0, 3, 3, 1, 4, 4, 0, 2, 1}),
          .labels = from_values(Floats{1, 0, 0, 1, 1})};
}
// Five samples; bags of 0 to 3 rows with weights.
Batch batch_of_bags() {
  return {.dense = uniform({5, 3}, 1, -1, 1),
          .rows = from_values(std::vector<int32_t>{6, 0, 3, 3, 1, 4, 4, 0, 2, 1}),
          .offsets = from_values(std::vector<int64_t>{0, 3, 3, 4, 5, 5, 6, 8, 8, 9, 10}),
          .weights = uniform({10}, 2, 0.5, 2),
          .labels = from_values(Floats{1, 0, 0, 1, 1})};
}
double loss_of(const Dlrm& model, const Batch& b) {
  const autograd::NoGrad off;
  return model.loss_sum(b.dense, b.rows, b.offsets, b.weights, b.labels).item();
}

// The definition, one number at a time and in double.
using Doubles = std::vector<double>;
Doubles naive_tower(layers::Module& model, const std::string& name, Doubles x, int layers,
                    bool relu_at_end) {
  for (int layer = 0; layer < layers; ++layer) {
    Tensor weight, bias;
    for (const auto& p : model.parameters()) {
      if (p.name == fmt::format("{}.{}.weight", name, layer)) weight = *p.slot;
      if (p.name == fmt::format("{}.{}.bias", name, layer)) bias = *p.slot;
    }
    const Floats w = values(weight), b = values(bias);
    Doubles y(b.begin(), b.end());
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
      if (layer + 1 < layers || relu_at_end) y[o] = std::max(y[o], 0.0);
    }
    x = y;
  }
  return x;
}
Doubles naive_logits(Dlrm& model, const Batch& b) {
  const int samples = 5, tables = 2, dim = 4;
  const Floats dense = values(b.dense), weight = values(model.tables().weight()),
               factors = b.weights.defined() ? values(b.weights) : Floats(10, 1);
  std::vector<int64_t> offsets{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  if (b.offsets.defined())
    offsets.assign(b.offsets.data<int64_t>(), b.offsets.data<int64_t>() + 11);
  Doubles logits;
  for (int s = 0; s < samples; ++s) {
    std::vector<Doubles> vectors{naive_tower(
        model, "bottom", Doubles(dense.begin() + s * 3, dense.begin() + s * 3 + 3), 3, true)};
    for (int t = 0; t < tables; ++t) {
      Doubles bag(dim);
      for (int64_t i = offsets[t * samples + s]; i < offsets[t * samples + s + 1]; ++i)
        for (int d = 0; d < dim; ++d)
          bag[d] += factors[i] *
                    weight[(model.tables().first_row(t) + b.rows.data<int32_t>()[i]) * dim + d];
      vectors.push_back(bag);
    }
    Doubles top = vectors[0];
    for (size_t i = 0; i < vectors.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        double product = 0;
        for (int d = 0; d < dim; ++d) product += vectors[i][d] * vectors[j][d];
        top.push_back(product);
      }
    logits.push_back(naive_tower(model, "top", top, 2, false)[0]);
  }
  return logits;
}

TEST(Dlrm, NamesItsParametersAndLeavesOutTheTables) {
  Dlrm model(kTiny, 1);
  std::vector<std::string> names;
  for (const auto& p : model.parameters())
    names.push_back(p.name + " " + to_string(p.slot->shape()));
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "bottom.0.weight [6, 3]", "bottom.0.bias [6]", "bottom.1.weight [5, 6]",
                "bottom.1.bias [5]", "bottom.2.weight [4, 5]", "bottom.2.bias [4]",
                "top.0.weight [9, 7]", "top.0.bias [9]", "top.1.weight [1, 9]", "top.1.bias [1]"}));
}

TEST(Dlrm, LogitsAreThoseOfTheDefinition) {
  Dlrm sums(kTiny, 1);
  DlrmConfig weighted_config = kTiny;
  weighted_config.mode = BagMode::weighted;
  Dlrm weighted(weighted_config, 1);
  for (auto& [model, b] :
       {std::pair{&sums, batch_of_rows()}, std::pair{&weighted, batch_of_bags()}}) {
    const Tensor logits = model->logits(b.dense, b.rows, b.offsets, b.weights);
    ASSERT_EQ(logits.shape(), Shape{5});
    const Doubles expected = naive_logits(*model, b);
    for (int s = 0; s < 5; ++s) EXPECT_NEAR(logits.data<float>()[s], expected[s], 1e-5) << s;
  }
}

TEST(Dlrm, LossIsTheCrossEntropyOfTheLogits) {
  Dlrm model(kTiny, 1);
  const Batch b = batch_of_rows();
  double expected = 0;
  const Doubles logits = naive_logits(model, b);
  for (int s = 0; s < 5; ++s)
    expected += std::log1p(std::exp(logits[s])) - b.labels.data<float>()[s] * logits[s];
  EXPECT_NEAR(loss_of(model, b), expected, 1e-5);
}

// Of every parameter and of every element of every table.
TEST(Dlrm, GradientsAreThoseOfFiniteDifferences) {
  DlrmConfig config = kTiny;
  config.mode = BagMode::weighted;
  Dlrm model(config, 3);
  uint64_t seed = 10;
  for (const auto& p : model.parameters())  // with biases of 0 an empty bag is at ReLU's kink
    if (p.slot->rank() == 1) kernel::copy(*p.slot, uniform(p.slot->shape(), seed++, -0.3, 0.5));
  const Batch b = batch_of_bags();
  autograd::backward(model.loss_sum(b.dense, b.rows, b.offsets, b.weights, b.labels));
  const auto expect_slopes = [&](const std::string& name, const Tensor& x, const Floats& gradient) {
    ASSERT_EQ(static_cast<int64_t>(gradient.size()), x.numel());
    for (int64_t i = 0; i < x.numel(); ++i) {
      float& element = x.mutable_data<float>()[i];
      const float before = element;
      element = before + 4e-3f;
      const double above = loss_of(model, b);
      element = before - 4e-3f;
      const double below = loss_of(model, b);
      element = before;
      EXPECT_NEAR(gradient[static_cast<size_t>(i)], (above - below) / 8e-3, 4e-3)
          << name << " " << i;
    }
  };
  const SparseGrad sparse = model.tables().gradient().coalesce();
  Floats table_gradient(static_cast<size_t>(model.tables().weight().numel()));
  for (int64_t r = 0; r < sparse.count(); ++r)
    for (int64_t d = 0; d < 4; ++d)
      table_gradient[static_cast<size_t>(sparse.rows.data<int64_t>()[r] * 4 + d)] =
          sparse.values.data<float>()[r * 4 + d];
  for (const auto& p : model.parameters())
    expect_slopes(p.name, *p.slot, values(autograd::grad(*p.slot)));
  expect_slopes("tables", model.tables().weight(), table_gradient);
}

TEST(Dlrm, WithoutDenseFeaturesTheBottomSeesOne) {
  DlrmConfig config = kTiny;
  config.dense = 0;
  Dlrm without(config, 1);
  config.dense = 1;
  Dlrm with(config, 1);
  const Batch b = batch_of_rows();
  const Tensor expected = with.logits(full({5, 1}, 1), b.rows);
  EXPECT_EQ(values(without.logits({}, b.rows)), values(expected));
  EXPECT_EQ(values(without.logits(Tensor::empty({5, 0}), b.rows)), values(expected));
}

TEST(Dlrm, InitialRowsAreTheTablesOfAWholeModel) {
  const DlrmConfig config{.table_rows = {50, 7, 90}, .dim = 6};
  Dlrm model(config, 4);
  const Floats all = values(model.tables().weight());
  Dlrm local(config, 4, {3, 3, 3});
  EXPECT_EQ(local.tables().weight().shape(), (Shape{9, 6}));
  EXPECT_EQ(values(local.tables().weight()), Floats(54));
  for (const auto& [first, n] : {std::pair{0, 147}, std::pair{49, 9}, std::pair{51, 3},
                                 std::pair{57, 90}, std::pair{5, 0}, std::pair{147, 0}}) {
    const Tensor out = Tensor::empty({n, 6});
    local.initial_rows(out, first);
    EXPECT_EQ(values(out), Floats(all.begin() + first * 6, all.begin() + (first + n) * 6)) << first;
  }
  EXPECT_THROW(local.initial_rows(Tensor::empty({2, 6}), 146), UsageError);
  EXPECT_THROW(local.initial_rows(Tensor::empty({2, 6}), -1), UsageError);
  EXPECT_THROW(local.initial_rows(Tensor::empty({2, 5}), 0), UsageError);
}

TEST(Dlrm, HoldsAsManyRowsAsItIsTold) {
  Dlrm whole(kTiny, 1), local(kTiny, 1, {3, 4});
  std::vector<layers::Parameter> a = whole.parameters(), b = local.parameters();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(values(*a[i].slot), values(*b[i].slot));
  // Rows 6, 0, 3 and 4, 0, 2, 1 of the tables, moved to where `local` has room for them.
  const std::vector<std::pair<int64_t, int64_t>> moves{{6, 0}, {0, 1}, {3, 2}, {11, 3},
                                                       {7, 4}, {9, 5}, {8, 6}};
  for (const auto& [from, to] : moves)
    kernel::copy(local.tables().weight().slice(to, to + 1),
                 whole.tables().weight().slice(from, from + 1));
  const Batch b5 = batch_of_rows();
  const Tensor rows = from_values(std::vector<int32_t>{6, 0, 3, 3, 0, 4, 4, 0, 2, 1}),
               places = from_values(std::vector<int32_t>{0, 1, 2, 2, 1, 0, 0, 1, 2, 3});
  EXPECT_EQ(values(local.logits(b5.dense, places)), values(whole.logits(b5.dense, rows)));
  EXPECT_THROW(Dlrm(kTiny, 1, {3}), UsageError);
}

TEST(Dlrm, SaysWhatDoesNotFit) {
  const auto with = [](auto change) {
    DlrmConfig config = kTiny;
    change(config);
    return config;
  };
  EXPECT_THROW(Dlrm(with([](DlrmConfig& c) { c.table_rows = {}; }), 1), UsageError);
  EXPECT_THROW(Dlrm(with([](DlrmConfig& c) { c.table_rows = {5, 0}; }), 1), UsageError);
  EXPECT_THROW(Dlrm(with([](DlrmConfig& c) { c.dim = 0; }), 1), UsageError);
  EXPECT_THROW(Dlrm(with([](DlrmConfig& c) { c.dense = -1; }), 1), UsageError);
  EXPECT_THROW(Dlrm(with([](DlrmConfig& c) { c.top = {0}; }), 1), UsageError);
  Dlrm model(kTiny, 1);
  const Batch b = batch_of_rows();
  EXPECT_THROW(model.logits({}, b.rows), UsageError);
  EXPECT_THROW(model.logits(uniform({4, 3}, 1, 0, 1), b.rows), UsageError);
}

TEST(Dlrm, CountsTheOperationsOfAStep) {
  // Bottom 3·6 + 6·5 + 5·4, without a gradient of the input; top 7·9 + 9; 3 pairs of 4.
  EXPECT_DOUBLE_EQ(product_flops(kTiny, 2), 2 * (6.0 * (18 + 30 + 20 + 63 + 9 + 12) - 2 * 18));
}

}  // namespace
}  // namespace lockstep::apps
