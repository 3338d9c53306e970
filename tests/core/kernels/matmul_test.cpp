#include "core/kernels/matmul.h"

#include <Eigen/Dense>
#include <thread>

#include "core/kernels/elementwise.h"
#include "tests/support/kernel_test.h"
#include "tests/support/naive.h"

namespace lockstep::test {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

class Matmul : public KernelTest {};
class MatmulKnownFaults : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Matmul);
LOCKSTEP_KERNEL_TESTS(MatmulKnownFaults);

Matrix matrix_of(const Tensor& x, bool transposed) {
  Matrix m(x.size(-2), x.size(-1));
  const std::vector<double> v = doubles(x);
  std::copy(v.begin(), v.end(), m.data());
  if (transposed) return m.transpose();
  return m;
}
std::vector<double> list_of(const Matrix& m) { return {m.data(), m.data() + m.size()}; }
Shape stored(int64_t rows, int64_t columns, bool transposed) {
  return transposed ? Shape{columns, rows} : Shape{rows, columns};
}

TEST_P(MatmulKnownFaults, O47_TheSmallProductInEveryStorage) {
  const Tensor a = from_values<float>({1, 2, 3, 4, 5, 6}, {2, 3}),
               at = from_values<float>({1, 4, 2, 5, 3, 6}, {3, 2});
  const Tensor b = from_values<float>({1, 0, 2, -1, 3, 1, 0, 2, -1, 2, 1, 0}, {3, 4}),
               bt = from_values<float>({1, 3, -1, 0, 1, 2, 2, 0, 1, -1, 2, 0}, {4, 3});
  for (bool trans_a : {false, true})
    for (bool trans_b : {false, true}) {
      const Tensor c = full({2, 4}, NAN);
      kernel::matmul(c, trans_a ? at : a, trans_b ? bt : b,
                     {.trans_a = trans_a, .trans_b = trans_b});
      EXPECT_EQ(values(c), (std::vector<float>{4, 8, 5, 3, 13, 17, 14, 6}));
    }
  // The gradients for an upstream of ones: dA = dC·Bᵀ, dB = Aᵀ·dC.
  const Tensor ones = full({2, 4}, 1), da = zeros({2, 3}), db = zeros({3, 4});
  kernel::matmul(da, ones, b, {.trans_b = true});
  kernel::matmul(db, a, ones, {.trans_a = true});
  EXPECT_EQ(values(da), (std::vector<float>{2, 6, 2, 2, 6, 2}));
  EXPECT_EQ(values(db), (std::vector<float>{5, 5, 5, 5, 7, 7, 7, 7, 9, 9, 9, 9}));
}

const int64_t kSizes[] = {0, 1, 2, 3, 7, 8, 11, 15, 17, 33};

TEST_P(MatmulKnownFaults, O47_AllUnequalSizesInEveryStorage) {
  ThreadBudget budget(1);
  for (int64_t m : kSizes)
    for (int64_t n : kSizes)
      for (int64_t k : kSizes) {
        if (m == n || n == k || m == k) continue;  // squares hide swaps
        for (bool trans_a : {false, true})
          for (bool trans_b : {false, true}) {
            const Tensor a = random_tensor(stored(m, k, trans_a), 1),
                         b = random_tensor(stored(k, n, trans_b), 2);
            const Matrix product = matrix_of(a, trans_a) * matrix_of(b, trans_b);
            const std::string what = fmt::format("{}x{}x{} {}{}", m, n, k, trans_a, trans_b);
            const Tensor c = full({m, n}, NAN);  // overwriting: what was there does not matter
            kernel::matmul(c, a, b, {.trans_a = trans_a, .trans_b = trans_b});
            expect_close(c, list_of(product), 1e-5, 1e-5, what);
            const Tensor sum = random_tensor({m, n}, 3), bias = random_tensor({n}, 4);
            Matrix expected = product + matrix_of(sum, false);
            for (int64_t j = 0; j < n; ++j)
              for (int64_t i = 0; i < m; ++i) expected(i, j) += values(bias)[j];
            kernel::matmul(
                sum, a, b,
                {.trans_a = trans_a, .trans_b = trans_b, .accumulate = true, .bias = bias});
            expect_close(sum, list_of(expected), 1e-5, 1e-5, what + " accumulated, with bias");
          }
      }
}

// A matrix whose rows lie 3 or 4 apart further than they are long; all else is NaN.
kernel::MatrixIn padded(const Tensor& x, int64_t extra, int64_t offset) {
  const int64_t rows = x.size(0), columns = x.size(1), ld = columns + extra;
  const kernel::MatrixIn in{full({offset + rows * ld + 1}, NAN), offset, rows, columns, ld};
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      in.buffer.mutable_data<float>()[offset + i * ld + j] = values(x)[i * columns + j];
  return in;
}

TEST_P(MatmulKnownFaults, O47_LeadingDimensionsLeavePaddingAlone) {
  // The case's own: A inside rows of 5, C inside rows of 7.
  for (int64_t m : {1, 2, 7, 17, 33})
    for (int64_t n : {1, 4, 8, 33})
      for (int64_t k : {0, 1, 3, 15, 17})
        for (int storage = 0; storage < 4; ++storage)
          for (bool accumulate : {false, true}) {
            const bool trans_a = storage & 1, trans_b = storage & 2;
            const Tensor a = random_tensor(stored(m, k, trans_a), 5),
                         b = random_tensor(stored(k, n, trans_b), 6), c = random_tensor({m, n}, 7);
            const kernel::MatrixIn out = padded(c, 3, 5);
            if (!accumulate)
              for (int64_t i = 0; i < m; ++i)
                std::fill_n(out.buffer.mutable_data<float>() + 5 + i * out.ld, n, NAN);
            kernel::matmul_strided(
                out.buffer, out, padded(a, 2, 1), padded(b, 4, 0),
                {.trans_a = trans_a, .trans_b = trans_b, .accumulate = accumulate});
            Matrix expected = matrix_of(a, trans_a) * matrix_of(b, trans_b);
            if (accumulate) expected += matrix_of(c, false);
            const std::vector<float> whole = values(out.buffer);
            for (int64_t at = 0; at < static_cast<int64_t>(whole.size()); ++at) {
              const int64_t i = (at - 5) / out.ld, j = (at - 5) % out.ld;
              if (at >= 5 && i < m && j < n)
                ASSERT_NEAR(whole[at], expected(i, j), 1e-5 + 1e-5 * std::abs(expected(i, j)))
                    << m << n << k << storage;
              else
                ASSERT_TRUE(std::isnan(whole[at])) << "padding was written";
            }
          }
}

TEST_P(Matmul, ReluIsThatOfTheFinishedSum) {
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{1, 1, 1}, {13, 33, 5}, {30, 70, 1100}, {5, 40, 0}})
    for (const bool accumulate : {false, true}) {
      const Tensor a = random_tensor({m, k}, 1), b = random_tensor({n, k}, 2),
                   bias = random_tensor({n}, 3), plain = random_tensor({m, n}, 4),
                   fused = empty_like(plain);
      kernel::copy(fused, plain);
      kernel::matmul(plain, a, b, {.trans_b = true, .accumulate = accumulate, .bias = bias});
      kernel::unary(plain, plain, kernel::Unary::relu);
      kernel::matmul(fused, a, b,
                     {.trans_b = true, .accumulate = accumulate, .bias = bias, .relu = true});
      EXPECT_EQ(values(fused), values(plain)) << m << " " << n << " " << k;
    }
}

// They are made the other way round: see Note [Narrow products].
TEST_P(Matmul, NarrowProductsHaveTheBitsOfTheUsualWay) {
  for (const int64_t n : {1, 3, 13, 15})
    for (const int64_t m : {64, 70, 2048})
      for (const int64_t k : {0, 1, 40, 1100})
        for (int storage = 0; storage < 4; ++storage) {
          const bool trans_a = storage & 1, trans_b = storage & 2;
          const Tensor a = random_tensor(stored(m, k, trans_a), 1),
                       b = random_tensor(stored(k, n, trans_b), 2), bias = random_tensor({n}, 3),
                       narrow = full({m, n}, NAN), usual = zeros({m, n});
          for (const bool relu : {false, true}) {
            kernel::matmul(narrow, a, b,
                           {.trans_a = trans_a, .trans_b = trans_b, .bias = bias, .relu = relu});
            kernel::fill(usual, 0);
            kernel::matmul(usual, a, b,
                           {.trans_a = trans_a,
                            .trans_b = trans_b,
                            .accumulate = true,
                            .bias = bias,
                            .relu = relu});
            ASSERT_EQ(values(narrow), values(usual)) << m << " " << n << " " << k << storage;
          }
        }
}

TEST_P(Matmul, ReluKeepsNan) {
  const Tensor y = zeros({1, 3});
  kernel::matmul(y, from_values<float>({1}, {1, 1}), from_values<float>({-1, NAN, 2}, {1, 3}),
                 {.relu = true});
  EXPECT_EQ(values(y)[0], 0);
  EXPECT_TRUE(std::isnan(values(y)[1]));
  EXPECT_EQ(values(y)[2], 2);
}

TEST_P(MatmulKnownFaults, O47_NothingToAddUp) {
  const Tensor a = zeros({2, 0}), b = zeros({0, 3}), c = full({2, 3}, NAN),
               bias = from_values<float>({1, 2, 3});
  kernel::matmul(c, a, b, {});
  EXPECT_EQ(values(c), std::vector<float>(6, 0.0f));
  kernel::matmul(c, a, b, {.bias = bias});
  EXPECT_EQ(values(c), (std::vector<float>{1, 2, 3, 1, 2, 3}));
  kernel::matmul(c, a, b, {.accumulate = true});
  EXPECT_EQ(values(c), (std::vector<float>{1, 2, 3, 1, 2, 3}));
}

TEST_P(MatmulKnownFaults, O47_Batches) {
  for (int64_t batch : {0, 1, 3})
    for (int storage = 0; storage < 4; ++storage)
      for (bool accumulate : {false, true}) {
        const bool trans_a = storage & 1, trans_b = storage & 2;
        const int64_t m = 7, n = 9, k = 5;
        const Tensor a = random_tensor(trans_a ? Shape{batch, k, m} : Shape{batch, m, k}, 8),
                     b = random_tensor(trans_b ? Shape{batch, n, k} : Shape{batch, k, n}, 9),
                     c = random_tensor({batch, m, n}, 10), before = empty_like(c),
                     bias = random_tensor({n}, 11);
        kernel::copy(before, c);
        kernel::matmul(
            c, a, b,
            {.trans_a = trans_a, .trans_b = trans_b, .accumulate = accumulate, .bias = bias});
        for (int64_t i = 0; i < batch; ++i) {
          const Tensor one = zeros({m, n});
          if (accumulate) kernel::copy(one, before.slice(i, i + 1));
          kernel::matmul(
              one, a.slice(i, i + 1).reshape(stored(m, k, trans_a)),
              b.slice(i, i + 1).reshape(stored(k, n, trans_b)),
              {.trans_a = trans_a, .trans_b = trans_b, .accumulate = accumulate, .bias = bias});
          expect_close(c.slice(i, i + 1), doubles(one), 1e-5, 1e-5);
        }
      }
}

TEST_P(Matmul, LargeProductsAgainstEigen) {
  for (int storage = 0; storage < 4; ++storage) {
    const bool trans_a = storage & 1, trans_b = storage & 2;
    const Tensor a = random_tensor(stored(300, 1000, trans_a), 12, 1, Placed::unaligned),
                 b = random_tensor(stored(1000, 129, trans_b), 13), c = zeros({300, 129});
    kernel::matmul(c, a, b, {.trans_a = trans_a, .trans_b = trans_b});
    expect_close(c, list_of(matrix_of(a, trans_a) * matrix_of(b, trans_b)), 1e-4, 1e-3);
  }
}

TEST_P(Matmul, RepeatsBitForBit) {
  const Tensor a = random_tensor({130, 257}, 14), b = random_tensor({257, 65}, 15),
               c = zeros({130, 65}), d = zeros({130, 65});
  kernel::matmul(c, a, b, {});
  kernel::matmul(d, a, b, {});
  EXPECT_EQ(values(c), values(d));
}

TEST(MatmulThreads, ManyMayMultiplyAtOnceAndAgree) {
  const Tensor a = random_tensor({64, 96}, 16), b = random_tensor({96, 80}, 17),
               expected = zeros({64, 80});
  {
    ThreadBudget budget(1);
    kernel::matmul(expected, a, b, {});
  }
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      ThreadBudget budget(1);
      const Tensor c = zeros({64, 80});
      for (int i = 0; i < 200; ++i) {
        kernel::matmul(c, a, b, {});
        wrong[t] += values(c) != values(expected);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(MatmulShapes, ThatDoNotFitAreRefusedByName) {
  const Tensor a = zeros({2, 3}), b = zeros({4, 5}), c = zeros({2, 5});
  const std::string text = error_of<UsageError>([&] { kernel::matmul(c, a, b, {}); });
  EXPECT_EQ(text, "[kernel.matmul] shapes do not fit; [2, 3] times [4, 5] into [2, 5]");
  EXPECT_THROW(kernel::matmul(c, a, zeros({3, 5}), {.bias = zeros({4})}), UsageError);
  EXPECT_THROW(kernel::matmul(c, a, zeros({3, 5}, DType::i32), {}), UsageError);
  EXPECT_THROW(kernel::matmul(zeros({2, 2, 5}), zeros({2, 2, 3}), zeros({3, 3, 5}), {}),
               UsageError);
  const kernel::MatrixIn outside{zeros({10}), 0, 2, 3, 8};
  EXPECT_THROW(kernel::matmul_strided(c, {c, 0, 2, 5, 5}, outside, {zeros({15}), 0, 3, 5, 5}, {}),
               UsageError);
}

}  // namespace
}  // namespace lockstep::test
