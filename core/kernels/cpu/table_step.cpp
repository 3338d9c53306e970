#include "core/kernels/table_step.h"

#include <array>
#include <cmath>

#include "core/kernels/cpu/coalesce.h"
#include "core/kernels/cpu/table_loops.h"

namespace lockstep::cpu {
namespace {

using kernel::RowGradients;
using kernel::RowStep;

// Rows whose gradients are summed before they are stepped: they stay in the first-level cache.
constexpr int64_t kBlockFloats = 1024;

float f(double x) { return static_cast<float>(x); }

RowConstants constants_of(const RowStep& step) {
  check(step.step >= 1, "[kernel.table_step] step; expected at least 1, got {}", step.step);
  const double t = static_cast<double>(step.step);
  return {.lr = f(step.lr),
          .factor = f(step.factor),
          .keep = f(1 - step.lr * step.weight_decay),
          .eps = f(step.eps),
          .beta2 = f(step.beta2),
          .fresh1 = f(1 - step.beta1),
          .fresh2 = f(1 - step.beta2),
          .step_size = f(step.lr / (1 - std::pow(step.beta1, t))),
          .scale2 = f(1 / std::sqrt(1 - std::pow(step.beta2, t)))};
}

void expect_state(std::string_view kernel, const Tensor& state, const Shape& shape) {
  expect_dtype(kernel, "state", state, DType::f32);
  expect_shape(kernel, "state", state, shape);
}

void expect_rows(std::string_view kernel, const Tensor& tables, const RowGradients& g) {
  expect_dtype(kernel, "tables", tables, DType::f32);
  expect_dtype(kernel, "rows", g.rows, DType::i64);
  expect_dtype(kernel, "values", g.values, DType::f32);
  check(tables.rank() == 2, "[kernel.{}] tables; expected [rows, width], got {}", kernel, tables);
  const int64_t count = g.rows.numel(), *rows = g.rows.data<int64_t>();
  expect_shape(kernel, "values", g.values, {count, tables.size(1)});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t before = i == 0 ? -1 : rows[i - 1];
    check(before < rows[i] && rows[i] < tables.size(0),
          "[kernel.{}] rows[{}]; expected {} < row < {} rows of the tables, got {}", kernel, i,
          before, tables.size(0), rows[i]);
  }
}

// step(task) for pieces of the rows, whose gradients are at hand. All that may fail does so before
// the first.
template <class Step>
void step_rows(std::string_view kernel, const Tensor& tables, const RowGradients& g,
               std::initializer_list<Soon> states, Step step) {
  if (g.rows.defined()) {
    expect_rows(kernel, tables, g);
    const int64_t count = g.rows.numel(), width = tables.size(1);
    float* table = tables.mutable_data<float>();
    const int64_t* rows = g.rows.data<int64_t>();
    const float* values = g.values.data<float>();
    parallel_for(count, row_grain(width + 32), [&](int64_t begin, int64_t end) {
      step({.table = table,
            .rows = rows + begin,
            .gradients = values + begin * width,
            .n = end - begin,
            .width = width,
            .fetched = false});
    });
    return;
  }
  expect_layout(kernel, tables, g.layout);
  const int64_t width = tables.size(1);
  const Coalescer sums(kernel, g.bags, g.layout, width);
  float* table = tables.mutable_data<float>();
  std::array<Soon, 3> all{Soon{table, width}};
  std::copy(states.begin(), states.end(), all.begin() + 1);
  const std::span<const Soon> soon(all.data(), 1 + states.size());
  const int64_t block = std::max<int64_t>(1, kBlockFloats / std::max<int64_t>(width, 1));
  parallel_for(sums.count(), row_grain(width + 32), [&](int64_t begin, int64_t end) {
    const Scratch<float> room(block * width);
    sums.over_runs(begin, end, [&](const int64_t* rows, int64_t count, const uint32_t* starts) {
      for (int64_t at = 0; at < count; at += block) {
        const int64_t n = std::min(block, count - at), left = count - at - n;
        sums.sums(room.data(), starts + at, n, left, rows + at, soon);
        step({.table = table,
              .rows = rows + at,
              .gradients = room.data(),
              .n = n,
              .width = width,
              .fetched = true});
      }
    });
  });
}

void table_sgd(const Tensor& tables, const RowGradients& g, const RowStep& options) {
  const RowConstants constants = constants_of(options);
  const auto loop = LOCKSTEP_PICK_LOOPS(Table).sgd;
  step_rows("table_sgd", tables, g, {}, [&](const RowTask& task) { loop(task, constants); });
}

// Adagrad with sums of another shape each.
template <class Loop>
void step_with_squares(std::string_view kernel, const Tensor& tables, const Tensor& squares,
                       const RowGradients& g, const RowStep& options, Loop loop) {
  const RowConstants constants = constants_of(options);
  float* sums = squares.mutable_data<float>();
  step_rows(kernel, tables, g, {{sums, squares.rank() == 1 ? 1 : tables.size(1)}},
            [&](const RowTask& task) { loop(task, sums, constants); });
}

void table_adagrad(const Tensor& tables, const Tensor& squares, const RowGradients& g,
                   const RowStep& options) {
  expect_state("table_adagrad", squares, tables.shape());
  step_with_squares("table_adagrad", tables, squares, g, options,
                    LOCKSTEP_PICK_LOOPS(Table).adagrad);
}

void table_rowwise_adagrad(const Tensor& tables, const Tensor& squares, const RowGradients& g,
                           const RowStep& options) {
  expect_state("table_rowwise_adagrad", squares, {tables.shape().rows()});
  step_with_squares("table_rowwise_adagrad", tables, squares, g, options,
                    LOCKSTEP_PICK_LOOPS(Table).rowwise_adagrad);
}

void table_adam(const Tensor& tables, const Tensor& m, const Tensor& v, const RowGradients& g,
                const RowStep& options) {
  expect_state("table_adam", m, tables.shape());
  expect_state("table_adam", v, tables.shape());
  const RowConstants constants = constants_of(options);
  const auto loop = LOCKSTEP_PICK_LOOPS(Table).adam;
  float *first = m.mutable_data<float>(), *second = v.mutable_data<float>();
  step_rows("table_adam", tables, g, {{first, tables.size(1)}, {second, tables.size(1)}},
            [&](const RowTask& task) { loop(task, first, second, constants); });
}

const Provide provided[] = {
    {kernel::table_sgd, DeviceType::cpu, table_sgd},
    {kernel::table_adagrad, DeviceType::cpu, table_adagrad},
    {kernel::table_rowwise_adagrad, DeviceType::cpu, table_rowwise_adagrad},
    {kernel::table_adam, DeviceType::cpu, table_adam},
};

}  // namespace
}  // namespace lockstep::cpu
