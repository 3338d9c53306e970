#include "core/kernels/reduce.h"

#include <numeric>

#include "core/kernels/elementwise.h"
#include "tests/support/kernel_calls.h"
#include "tests/support/kernel_test.h"
#include "tests/support/naive.h"

namespace lockstep::test {
namespace {

class Reduce : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Reduce);

TEST_P(Reduce, SumsOfAllSizes) {
  for (Placed placed : {Placed::aligned, Placed::unaligned})
    for (int64_t n : odd_sizes()) {
      const Tensor x = random_tensor({n}, 1, 1, placed), out = full({1}, NAN);
      const std::vector<double> v = doubles(x);
      kernel::sum(out, x);
      expect_close(out, {std::accumulate(v.begin(), v.end(), 0.0)}, 1e-6, 1e-6);
      const double squares = std::inner_product(v.begin(), v.end(), v.begin(), 0.0);
      EXPECT_NEAR(kernel::sum_of_squares(x), squares, 1e-12 * squares);
    }
}

TEST_P(Reduce, LongSumsNeitherStallNorDrift) {
  // In plain f32 a sum of ones stops at 2^24, and tenths drift by percents.
  const int64_t n = (int64_t{1} << 24) + 1001;
  const Tensor out = zeros({1}), ones = full({n}, 1);
  kernel::sum(out, ones);
  EXPECT_EQ(out.item(), static_cast<double>(static_cast<float>(n)));
  kernel::column_sum(out, ones.reshape({n, 1}));
  EXPECT_EQ(out.item(), static_cast<double>(static_cast<float>(n)));
  kernel::fill(ones, 0.1);
  kernel::sum(out, ones);
  EXPECT_NEAR(out.item(), 0.1 * static_cast<double>(n), 1);
}

TEST_P(Reduce, SumOfSquaresIsFiniteForFiniteNumbers) {
  const float largest = std::numeric_limits<float>::max();
  const Tensor x = full({1000}, largest);
  EXPECT_NEAR(kernel::sum_of_squares(x) / (1000.0 * largest * largest), 1, 1e-12);
  EXPECT_GT(kernel::sum_of_squares(full({1}, 1e-30)), 0);
}

TEST_P(Reduce, ColumnSumOfAllShapes) {
  for (int64_t rows : {0, 1, 3, 4, 63, 64, 65, 1000})
    for (int64_t columns : {0, 1, 7, 16, 17, 64, 65, 384, 1000}) {
      const Tensor x = random_tensor({rows, columns}, 2, 1, Placed::unaligned),
                   out = full({columns}, NAN);
      kernel::column_sum(out, x);
      expect_close(out, naive::column_sum(doubles(x), rows, columns), 1e-5, 1e-5);
    }
}

TEST_P(Reduce, ResultsDoNotDependOnTheThreadBudget) {
  const Tensor x = random_tensor({1000, 333}, 3);
  const auto run = [&](int threads) {
    ThreadBudget budget(threads);
    const Tensor sum = zeros({1}), columns = zeros({333});
    kernel::sum(sum, x);
    kernel::column_sum(columns, x);
    std::vector<float> all = values(columns);
    all.push_back(values(sum)[0]);
    return all;
  };
  EXPECT_EQ(run(1), run(2));
  EXPECT_EQ(run(1), run(3));
}

TEST_P(Reduce, FirstNonFiniteFindsTheFirst) {
  for (int64_t n : {1, 16, 17, 1024, 1025, 300000}) {
    const Tensor x = random_tensor({n}, 4, 1, Placed::unaligned);
    EXPECT_EQ(kernel::first_non_finite(x), -1);
    kernel::fill(x, std::numeric_limits<float>::max());
    EXPECT_EQ(kernel::first_non_finite(x), -1) << "the largest finite number is finite";
    for (int64_t i : {n - 1, n / 2, int64_t{0}})
      for (float bad : {NAN, INFINITY, -INFINITY}) {
        x.mutable_data<float>()[i] = bad;
        EXPECT_EQ(kernel::first_non_finite(x), i);
      }
  }
  EXPECT_EQ(kernel::first_non_finite(zeros({0})), -1);
}

TEST_P(Reduce, ArgmaxIsTheFirstOfTheLargest) {
  for (int64_t width : {1, 2, 15, 16, 17, 100, 1000}) {
    const Tensor x = random_tensor({50, width}, 5, 1, Placed::unaligned),
                 out = full({50}, -1, DType::i64);
    kernel::argmax(out, x);
    const std::vector<float> v = values(x);
    for (int64_t r = 0; r < 50; ++r) {
      const auto row = v.begin() + r * width;
      EXPECT_EQ(values<int64_t>(out)[r], std::max_element(row, row + width) - row);
    }
  }
  const Tensor ties =
      from_values<float>({1, 3, 3, -INFINITY, -INFINITY, -INFINITY, 1, NAN, 2}, {3, 3});
  const Tensor out = Tensor::empty({3}, DType::i64);
  kernel::argmax(out, ties);
  EXPECT_EQ(values<int64_t>(out), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_THROW(kernel::argmax(out, zeros({3, 0})), UsageError);
}

}  // namespace
}  // namespace lockstep::test
