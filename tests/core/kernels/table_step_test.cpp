#include "core/kernels/table_step.h"

#include "core/kernels/elementwise.h"
#include "tests/support/bags.h"
#include "tests/support/kernel_test.h"

#include <cmath>

namespace lockstep::test {
namespace {

using kernel::BagGradient;
using kernel::RowGradients;
using kernel::RowStep;

class TableStep : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(TableStep);

enum class Rule { sgd, adagrad, rowwise, adam };
constexpr Rule kRules[] = {Rule::sgd, Rule::adagrad, Rule::rowwise, Rule::adam};

// Tables with the state of any rule.
struct State {
  explicit State(const Tensor& start)
      : w(empty_like(start)),
        squares(full(start.shape(), 0.5)),
        row_squares(full({start.size(0)}, 0.5)),
        m(empty_like(start)),
        v(full(start.shape(), 0.25)) {
    kernel::copy(w, start);
    kernel::scale(m, start, -0.5f);
  }
  void step(Rule rule, const RowGradients& g, const RowStep& options) const {
    switch (rule) {
      case Rule::sgd:
        return kernel::table_sgd(w, g, options);
      case Rule::adagrad:
        return kernel::table_adagrad(w, squares, g, options);
      case Rule::rowwise:
        return kernel::table_rowwise_adagrad(w, row_squares, g, options);
      case Rule::adam:
        return kernel::table_adam(w, m, v, g, options);
    }
  }
  std::vector<std::vector<float>> all() const {
    return {values(w), values(squares), values(row_squares), values(m), values(v)};
  }
  Tensor w, squares, row_squares, m, v;
};

constexpr RowStep kStep{.lr = 0.1,
                        .factor = 0.5,
                        .weight_decay = 0.2,
                        .eps = 1e-3,
                        .beta1 = 0.9,
                        .beta2 = 0.99,
                        .step = 3};

// Every row that is stepped, in double.
void naive(Rule rule, int64_t row, int64_t width, const std::vector<float>& g,
           std::vector<std::vector<double>>& all) {
  const RowStep& o = kStep;
  double mean = 0;
  for (float x : g) mean += 0.25 * x * x / static_cast<double>(width);
  if (rule == Rule::rowwise) all[2][row] += mean;
  for (int64_t c = 0; c < width; ++c) {
    const int64_t i = row * width + c;
    const double x = 0.5 * g[c];
    double move = x;
    if (rule == Rule::adagrad) {
      all[1][i] += x * x;
      move = x / (std::sqrt(all[1][i]) + o.eps);
    } else if (rule == Rule::rowwise) {
      move = x / (std::sqrt(all[2][row]) + o.eps);
    } else if (rule == Rule::adam) {
      all[3][i] = o.beta1 * all[3][i] + (1 - o.beta1) * x;
      all[4][i] = o.beta2 * all[4][i] + (1 - o.beta2) * x * x;
      move = all[3][i] / (1 - std::pow(o.beta1, 3)) /
             (std::sqrt(all[4][i] / (1 - std::pow(o.beta2, 3))) + o.eps);
    }
    all[0][i] = all[0][i] * (1 - o.lr * o.weight_decay) - o.lr * move;
  }
}

TEST_P(TableStep, StepsTheRowsOfTheGradientAndNoOther) {
  for (int64_t width : {1, 3, 8, 16, 17, 64}) {
    const Tensor start = random_tensor({200, width}, 1);
    for (Rule rule : kRules) {
      const State state(start);
      std::vector<std::vector<double>> expected;
      for (const auto& v : state.all()) expected.emplace_back(v.begin(), v.end());
      std::vector<int64_t> rows{0, 1, 5, 199};
      for (int64_t r = 20; r < 150; ++r) rows.push_back(r);
      std::sort(rows.begin(), rows.end());
      const auto count = static_cast<int64_t>(rows.size());
      const Tensor g = random_tensor({count, width}, 9);
      const std::vector<float> values_of_g = values(g);
      const auto before = state.all();
      for (int64_t i = 0; i < count; ++i)
        naive(rule, rows[i], width,
              {values_of_g.begin() + i * width, values_of_g.begin() + (i + 1) * width}, expected);
      state.step(rule, {from_values(rows), g}, kStep);
      expect_close(state.w, expected[0], 2e-6, 2e-6, "weights");
      expect_close(state.squares, expected[1], 2e-6, 0, "squares");
      expect_close(state.row_squares, expected[2], 2e-6, 0, "squares of rows");
      expect_close(state.m, expected[3], 2e-6, 1e-6, "m");
      expect_close(state.v, expected[4], 2e-6, 0, "v");
      for (int64_t c = 2 * width; c < 5 * width; ++c)
        EXPECT_EQ(values(state.w)[c], before[0][c]) << "rows 2 to 4 are not in the gradient";
    }
  }
}

// Coalescing on the way has the bits of coalescing first.
TEST_P(TableStep, OnePassHasTheBitsOfTwo) {
  const TestTables layout({5, 1, 300, 700});
  uint32_t key = 50;
  for (int64_t width : {1, 3, 16, 100}) {
    const Tensor start = random_tensor({layout.all(), width}, 1);
    for (BagMode mode : {BagMode::sum, BagMode::mean, BagMode::weighted})
      for (Rule rule : kRules)
        for (int64_t padding : {-1, 0}) {
          std::vector<BagGradient> parts;
          for (int64_t samples : {60, 7}) {
            ++key;
            parts.push_back({random_tensor({samples, layout.count(), width}, key),
                             random_bags<int32_t>(layout, samples, 3, mode, key)});
          }
          if (key % 2 == 0) parts.pop_back();
          const State one(start), two(start);
          const SparseGrad g = coalesced(parts, layout, padding);
          one.step(rule, {.rows = g.rows, .values = g.values}, kStep);
          two.step(rule,
                   {.rows = {}, .values = {}, .bags = parts, .layout = layout.layout(padding)},
                   kStep);
          ASSERT_EQ(one.all(), two.all());
        }
  }
}

TEST_P(TableStep, ThreadsDoNotChangeTheBits) {
  const TestTables layout({3, 20'000});
  const std::vector<BagGradient> parts{
      {random_tensor({5000, 2, 16}, 3), random_bags<int32_t>(layout, 5000, 0, BagMode::sum, 3)}};
  const Tensor start = random_tensor({layout.all(), 16}, 1);
  for (Rule rule : kRules) {
    std::vector<std::vector<std::vector<float>>> results;
    for (int threads : {1, 2, 3}) {
      const ThreadBudget budget(threads);
      const State state(start);
      state.step(rule, {.rows = {}, .values = {}, .bags = parts, .layout = layout.layout()}, kStep);
      results.push_back(state.all());
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST_P(TableStep, RowsThatDoNotAscendOrFitAreErrorsBeforeAnythingIsWritten) {
  for (Rule rule : kRules)
    for (const std::vector<int64_t>& rows : std::vector<std::vector<int64_t>>{
             {0, 10}, {-1, 2}, {3, 3}, {4, 3}, {0, int64_t{1} << 40}}) {
      const State state(random_tensor({10, 2}, 1));
      const auto before = state.all();
      const std::string text = error_of<UsageError>([&] {
        state.step(rule, {from_values(rows), full({2, 2}, 1)}, kStep);
      });
      EXPECT_NE(text.find("rows["), std::string::npos) << text;
      EXPECT_EQ(state.all(), before);
    }
  const State state(random_tensor({10, 2}, 1));
  const Tensor rows = from_values<int64_t>({1});
  EXPECT_THROW(state.step(Rule::sgd, {rows, zeros({2, 2})}, kStep), UsageError);
  EXPECT_THROW(state.step(Rule::sgd, {rows, zeros({1, 3})}, kStep), UsageError);
  EXPECT_THROW(state.step(Rule::sgd, {from_values<int32_t>({1}), zeros({1, 2})}, kStep),
               UsageError);
  EXPECT_THROW(kernel::table_adagrad(state.w, zeros({10}), {rows, zeros({1, 2})}, kStep),
               UsageError);
  EXPECT_THROW(kernel::table_rowwise_adagrad(state.w, state.squares, {rows, zeros({1, 2})}, kStep),
               UsageError);
  EXPECT_THROW(kernel::table_adam(state.w, state.m, zeros({10}), {rows, zeros({1, 2})}, kStep),
               UsageError);
  EXPECT_THROW(state.step(Rule::adam, {rows, zeros({1, 2})}, {.lr = 1, .factor = 1, .step = 0}),
               UsageError);
}

}  // namespace
}  // namespace lockstep::test
