#include "optim/table_optimizer.h"

#include "optim/optimizer.h"
#include "optim/table_memory.h"

#include "core/allocator.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"
#include "core/memory_state.h"

#include "tests/optim/recipes.h"
#include "tests/support/bags.h"
#include "tests/support/error_of.h"
#include "tests/support/kernel_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::optim {
namespace {

using test::error_of;
using test::random_bags;
using test::random_tensor;
using test::TestTables;

const TestTables& layout() {
  static const TestTables tables({30, 5, 200});
  return tables;
}
constexpr int64_t kWidth = 6;

SparseGrad rows_of(const std::vector<int64_t>& rows, const std::vector<float>& values,
                   int64_t width = 1) {
  return {from_values(rows), from_values(values, {static_cast<int64_t>(rows.size()), width})};
}

struct TableRecipe {
  std::string name, spec;
  TableOptions options;
};
void PrintTo(const TableRecipe& recipe, std::ostream* out) { *out << recipe.name; }

class TableRecipes : public ::testing::TestWithParam<TableRecipe> {
 protected:
  std::unique_ptr<TableOptimizer> make(const Tensor& tables) const {
    return make_table_optimizer(GetParam().spec, tables, GetParam().options);
  }
  static Tensor tables() { return random_tensor({layout().all(), kWidth}, 1); }
  static SparseGrad gradient(uint32_t key) {
    const kernel::Bags bags = random_bags<int32_t>(layout(), 20, 2, BagMode::sum, key);
    return test::coalesced({{random_tensor({20, layout().count(), kWidth}, key), bags}}, layout());
  }
  static MemoryState state_of(TableOptimizer& optimizer) {
    MemoryState state;
    state.save([&](StateIo& io) { optimizer.state(io); });
    return state;
  }
};

INSTANTIATE_TEST_SUITE_P(
    All, TableRecipes,
    ::testing::Values(
        TableRecipe{"sgd", "sgd", {.lr = 0.1, .weight_decay = 0.1}},
        TableRecipe{"adagrad", "adagrad", {.lr = 0.1, .weight_decay = 0.1}},
        TableRecipe{"rowwise_adagrad", "rowwise_adagrad", {.lr = 0.1, .weight_decay = 0.1}},
        TableRecipe{"lazy_adam", "lazy_adam", {.lr = 0.01, .weight_decay = 0.1}},
        TableRecipe{"lazy_adam_betas", "lazy_adam:beta1=0.5,beta2=0.9,eps=1e-3", {.lr = 0.01}}),
    [](const auto& recipe) { return recipe.param.name; });

// Row by row in double, over steps that look up some rows and not others.
TEST_P(TableRecipes, AgreesWithItsNaiveTwin) {
  const std::string spec = GetParam().spec;
  const bool betas = spec.find("beta1") != std::string::npos;
  const double lr = GetParam().options.lr, decay = GetParam().options.weight_decay,
               beta1 = betas ? 0.5 : 0.9, beta2 = betas ? 0.9 : 0.999, eps = betas ? 1e-3 : 1e-8;
  const Tensor w = tables();
  const auto optimizer = make(w);
  std::vector<double> twin = test::doubles(w), m(twin.size()), v(twin.size());
  for (uint32_t step = 1; step <= 12; ++step) {
    const SparseGrad gradient = TableRecipes::gradient(step);
    optimizer->step(gradient, {.factor = 0.25f});
    for (const auto& [row, values_of_row] : test::as_rows(gradient)) {
      double mean = 0;
      for (float x : values_of_row) mean += 0.0625 * x * x / kWidth;
      const int64_t first = row * kWidth;
      if (spec == "rowwise_adagrad") v[first] += mean;
      for (int64_t c = 0; c < kWidth; ++c) {
        const int64_t i = first + c;
        const double g = 0.25 * values_of_row[c];
        double move = g;
        if (spec == "adagrad") {
          v[i] += g * g;
          move = g / (std::sqrt(v[i]) + eps);
        } else if (spec == "rowwise_adagrad") {
          move = g / (std::sqrt(v[first]) + eps);
        } else if (spec != "sgd") {
          m[i] = beta1 * m[i] + (1 - beta1) * g;
          v[i] = beta2 * v[i] + (1 - beta2) * g * g;
          move = m[i] / (1 - std::pow(beta1, step)) /
                 (std::sqrt(v[i] / (1 - std::pow(beta2, step))) + eps);
        }
        twin[i] = twin[i] * (1 - lr * decay) - lr * move;
      }
    }
  }
  test::expect_close(w, twin, 1e-5, 1e-5);
}

TEST_P(TableRecipes, RowsThatAreNotLookedUpKeepTheirBits) {
  const Tensor w = tables();
  const auto optimizer = make(w);
  optimizer->step(gradient(1), {});
  const std::vector<float> before = values(w);
  optimizer->step(rows_of({7}, std::vector<float>(kWidth, 1), kWidth), {});
  const std::vector<float> after = values(w);
  for (int64_t i = 0; i < w.numel(); ++i) {
    if (i / kWidth == 7)
      EXPECT_NE(after[i], before[i]);
    else
      EXPECT_EQ(after[i], before[i]) << "neither decay nor old moments move it";
  }
}

TEST_P(TableRecipes, AWindowCoalescedAndSteppedInOnePassHasTheBitsOfTwo) {
  const Tensor a = tables(), b = tables();
  const auto one = make(a), two = make(b);
  autograd::TableGradient first(layout().rows, kWidth, 2), second(layout().rows, kWidth, 2);
  for (uint32_t step = 0; step < 5; ++step) {
    for (uint32_t micro = 0; micro < 1 + step % 3; ++micro) {
      const kernel::Bags bags =
          random_bags<int32_t>(layout(), 30, 3, BagMode::mean, 10 * step + micro);
      const Tensor dy = random_tensor({30, 3, kWidth}, 10 * step + micro);
      first.add(dy, bags);
      second.add(dy, bags);
    }
    const StepVerdict verdict{.apply = step != 3, .factor = 0.5f};
    one->step(first.coalesce(), verdict);
    two->step(second, verdict);
    EXPECT_EQ(second.micro_batches(), 0) << "the window ended, applied or not";
  }
  EXPECT_EQ(values(a), values(b));
  EXPECT_TRUE(state_of(*one) == state_of(*two));
}

TEST_P(TableRecipes, StopAndResumeIsTheUninterruptedRun) {
  const Tensor a = tables(), b = tables();
  const auto one = make(a);
  auto two = make(b);
  for (uint32_t step = 0; step < 6; ++step) {
    one->set_lr(0.1 / (step + 1));
    two->set_lr(0.1 / (step + 1));
    if (step == 3) {
      const MemoryState state = state_of(*two);
      TableOptions options = GetParam().options;
      options.lr = 77;  // comes with the state
      two = make_table_optimizer(GetParam().spec, b, options);
      state.load([&](StateIo& io) { two->state(io); });
      EXPECT_TRUE(state_of(*two) == state);
    }
    one->step(gradient(step), {});
    two->step(gradient(step), {});
  }
  EXPECT_EQ(values(a), values(b));
  EXPECT_TRUE(state_of(*one) == state_of(*two));
}

TEST_P(TableRecipes, ASkippedStepLeavesNoTrace) {
  const Tensor w = tables();
  const auto optimizer = make(w);
  optimizer->step(gradient(1), {});
  const std::vector<float> before = values(w);
  const MemoryState state = state_of(*optimizer);
  const uint64_t version = w.version();
  SparseGrad bad = gradient(2);
  bad.values.mutable_data<float>()[0] = std::numeric_limits<float>::infinity();
  optimizer->step(bad, {.apply = false});
  EXPECT_EQ(values(w), before);
  EXPECT_EQ(w.version(), version);
  EXPECT_TRUE(state_of(*optimizer) == state);
}

TEST_P(TableRecipes, TheFactorIsAppliedWhileReading) {
  const Tensor a = tables(), b = tables();
  const SparseGrad g = gradient(3), quarter = gradient(3);
  kernel::scale(quarter.values, g.values, 0.25f);
  const std::vector<float> before = values(g.values);
  make(a)->step(g, {.factor = 0.25f});
  make(b)->step(quarter, {});
  EXPECT_EQ(values(a), values(b));
  EXPECT_EQ(values(g.values), before) << "nothing is unscaled in place";
}

TEST_P(TableRecipes, AWarmStepAsksTheSystemForNothing) {
  const Tensor w = tables();
  const auto optimizer = make(w);
  autograd::TableGradient window(layout().rows, kWidth);
  const auto once = [&](uint32_t key) {
    window.add(random_tensor({50, 3, kWidth}, key),
               random_bags<int32_t>(layout(), 50, 0, BagMode::sum, key));
    optimizer->step(window, {});
    window.add(random_tensor({50, 3, kWidth}, key),
               random_bags<int32_t>(layout(), 50, 0, BagMode::sum, key));
    optimizer->step(window.coalesce(), {});
  };
  for (uint32_t i = 0; i < 3; ++i) once(i);
  const int64_t before = host_allocator().stats().system_calls;
  for (uint32_t i = 3; i < 10; ++i) once(i);
  EXPECT_EQ(host_allocator().stats().system_calls, before);
}

// ---------------------------------------------------------------- known faults

TEST(KnownFaults, O26_LazyAndDenseAdam) {
  // Gradient 1 at the first step, none at the second.
  const TableOptions options{.lr = 0.1, .eps = 0};
  const Tensor w = zeros({2, 1});
  const auto lazy = make_table_optimizer("lazy_adam", w, options);
  lazy->step(rows_of({0}, {1}), {});
  EXPECT_NEAR(values(w)[0], -0.1, 1e-7);
  const float after_first = values(w)[0];
  lazy->step(rows_of({1}, {1}), {});
  EXPECT_EQ(values(w)[0], after_first) << "lazy: a row that is not looked up stands still";

  const Buffer dense({1});
  const auto adam = make_optimizer("adam", dense.view(), {.lr = 0.1, .eps = 0});
  optim::step(*adam, dense, {1});
  const float before = values(dense.param)[0];
  optim::step(*adam, dense, {0});
  EXPECT_NEAR(values(dense.param)[0] - before, -0.0670058, 1e-7) << "dense: its momentum moves it";

  // A gradient that was computed and is 0 is used: the row moves as under dense Adam.
  const Tensor u = zeros({1, 1});
  const auto used = make_table_optimizer("lazy_adam", u, options);
  used->step(rows_of({0}, {1}), {});
  const float first = values(u)[0];
  used->step(rows_of({0}, {0}), {});
  EXPECT_NEAR(values(u)[0] - first, -0.0670058, 1e-7);
}

TEST(KnownFaults, O26_DecoupledDecayOfTouchedRowsOnly) {
  for (const char* name : {"sgd", "adagrad", "rowwise_adagrad", "lazy_adam"}) {
    const Tensor w = full({3, 2}, 2);
    const auto optimizer = make_table_optimizer(name, w, {.lr = 0.1, .weight_decay = 0.5});
    optimizer->step(rows_of({1}, {0, 0}, 2), {});
    EXPECT_EQ(values(w), (std::vector<float>{2, 2, 2 * 0.95f, 2 * 0.95f, 2, 2})) << name;
  }
}

// What O07 needs of sparse gradients: the squares of coalesced values, which of duplicates differ.
TEST(KnownFaults, O07_TheNormIsThatOfCoalescedRows) {
  const TestTables one({4});
  const kernel::Bags bags{from_values<int32_t>({2, 2, 0})};
  const SparseGrad g = test::coalesced({{from_values<float>({36, 48, 12}, {3, 1, 1}), bags}}, one);
  EXPECT_EQ(values(g.values), (std::vector<float>{12, 84}));
  const double dense = kernel::sum_of_squares(from_values<float>({3, 4}));
  EXPECT_EQ(std::sqrt(dense + kernel::sum_of_squares(g.values)), 85);
}

// ---------------------------------------------------------------- steps, errors

TEST(TableOptimizer, AStepWithoutRowsIsAStep) {
  const TableOptions options{.lr = 0.1, .eps = 0};
  const Tensor a = zeros({1, 1}), b = zeros({1, 1});
  const auto one = make_table_optimizer("lazy_adam", a, options),
             two = make_table_optimizer("lazy_adam", b, options);
  for (TableOptimizer* optimizer : {one.get(), two.get()}) optimizer->step(rows_of({0}, {1}), {});
  one->step(rows_of({}, {}), {});
  autograd::TableGradient nothing(std::vector<int64_t>{1}, 1);
  two->step(nothing, {});
  for (TableOptimizer* optimizer : {one.get(), two.get()}) optimizer->step(rows_of({0}, {1}), {});
  EXPECT_EQ(values(a), values(b));
  // By hand: m = 0.1·0.9 + 0.1 = 0.19 after steps 1 and 3, bias corrected with t = 3.
  const double m = 0.19 / (1 - std::pow(0.9, 3)),
               v = (0.001 * 0.999 + 0.001) / (1 - std::pow(0.999, 3));
  EXPECT_NEAR(values(a)[0], -0.1 - 0.1 * m / std::sqrt(v), 1e-6);
}

TEST(TableOptimizer, NamesWhatThereIs) {
  const Tensor w = zeros({2, 2});
  const auto error = [&](const char* spec, const TableOptions& options = {}) {
    return error_of<UsageError>([&] { make_table_optimizer(spec, w, options); });
  };
  EXPECT_EQ(error("lion"),
            "[core.registry] unknown table optimizer; expected adagrad, lazy_adam, "
            "rowwise_adagrad, sgd, got 'lion'");
  EXPECT_NE(error("sgd:beta1=0.5").find("unknown setting"), std::string::npos);
  EXPECT_EQ(error("sgd", {.lr = -1}),
            "[optim.table_optimizer] learning rate; expected at least 0, got -1");
  EXPECT_NE(error("lazy_adam", {.beta1 = 1}).find("beta1"), std::string::npos);
  EXPECT_NE(error("lazy_adam:beta2=1"), "");
  EXPECT_NE(error("adagrad", {.eps = std::nan("")}).find("eps"), std::string::npos);
  EXPECT_NE(error("adagrad", {.weight_decay = -1}).find("weight decay"), std::string::npos);
  EXPECT_THROW(make_table_optimizer("sgd", w, {})->set_lr(-1), UsageError);
  EXPECT_THROW(make_table_optimizer("sgd", zeros({4}), {}), UsageError);
  EXPECT_THROW(make_table_optimizer("sgd", zeros({4, 1}, DType::f16), {}), UsageError);
  EXPECT_THROW(make_table_optimizer("sgd", w, {})->step(SparseGrad{}, {}), UsageError);
  EXPECT_NE(TableOptimizerRegistry::instance().help().find("rowwise_adagrad"), std::string::npos);
}

TEST(TableOptimizer, AnErrorLeavesNoTrace) {
  const Tensor w = zeros({2, 1});
  const auto adam = make_table_optimizer("lazy_adam", w, {});
  EXPECT_THROW(adam->step(rows_of({2}, {1}), {}), UsageError);
  MemoryState state, fresh;
  state.save([&](StateIo& io) { adam->state(io); });
  fresh.save([&](StateIo& io) { make_table_optimizer("lazy_adam", w, {})->state(io); });
  EXPECT_TRUE(state == fresh);
  EXPECT_EQ(values(w), std::vector<float>(2, 0.0f));
}

TEST(TableMemory, IsKnownBeforeAnythingIsAllocated) {
  const std::vector<int64_t> rows{100'000'000};
  EXPECT_EQ(table_memory(rows, 16, "sgd").all(), 6'400'000'000);
  EXPECT_EQ(table_memory(rows, 16, "adagrad").state, 6'400'000'000);
  EXPECT_EQ(table_memory(rows, 16, "rowwise_adagrad").state, 400'000'000);
  EXPECT_EQ(table_memory(rows, 16, "lazy_adam:eps=1e-6").state, 12'800'000'000);
  EXPECT_THROW(table_memory(rows, 16, "lion"), UsageError);
  EXPECT_THROW(table_memory(std::vector<int64_t>(4, int64_t{1} << 61), 16, "sgd"), UsageError);
  // It is what the optimizer then asks for.
  const std::vector<int64_t> some{1000, 24};
  const Tensor w = zeros({1024, 16});
  for (const char* name : {"sgd", "adagrad", "rowwise_adagrad", "lazy_adam"}) {
    const int64_t before = host_allocator().stats().live;
    const auto optimizer = make_table_optimizer(name, w, {});
    const int64_t taken = host_allocator().stats().live - before;
    const int64_t expected = table_memory(some, 16, name).state;
    EXPECT_GE(taken, expected) << name;
    EXPECT_LE(taken, expected + expected / 4 + 4096) << name;
  }
}

TEST(TableMemory, WhatDoesNotFitIsRefusedWithTheArithmetic) {
  const std::vector<int64_t> rows(26, 100'000'000);
  host_allocator().reset_peak();
  const int64_t before = host_allocator().stats().live;
  const std::string text =
      error_of<SystemError>([&] { expect_tables_fit(rows, 16, "adagrad", 16'000'000'000); });
  EXPECT_EQ(text,
            "[optim.table_memory] 26 tables with 2600000000 rows x 16 x 4 B = 166 GB, state of "
            "adagrad 166 GB; expected at most the 16 GB of this machine, got 333 GB; fewer or "
            "narrower rows, or optimizers with less state (sgd, rowwise_adagrad), need less");
  EXPECT_LT(host_allocator().stats().peak, before + (1 << 20));
  try {
    expect_tables_fit(rows, 16, "sgd", 1);
    ADD_FAILURE();
  } catch (const SystemError& e) {
    EXPECT_EQ(e.fault(), Fault::device);
  }
  const std::vector<int64_t> one{100};
  EXPECT_NO_THROW(expect_tables_fit(one, 16, "sgd", 6400));
  EXPECT_THROW(expect_tables_fit(one, 16, "sgd", 6399), SystemError);
  EXPECT_NO_THROW(expect_tables_fit(one, 16, "sgd", 12800, {.copies = 2}));
  EXPECT_NE(error_of<SystemError>([&] {
              expect_tables_fit(one, 16, "sgd", 12799, {.copies = 2});
            }).find("on each of 2 ranks; expected at most"),
            std::string::npos);
  EXPECT_NO_THROW(expect_tables_fit(one, 16, "sgd", 13600, {.copies = 2, .count_bytes = 4}));
  EXPECT_NE(error_of<SystemError>([&] {
              expect_tables_fit(one, 16, "sgd", 13599, {.copies = 2, .count_bytes = 4});
            }).find("state of sgd 0 GB, counts of updates 4e-07 GB, on each of 2 ranks"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::optim
