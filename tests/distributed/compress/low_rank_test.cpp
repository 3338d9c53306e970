// The algebra of PowerSGD, without ranks.
#include "distributed/compress/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/kernels/matmul.h"
#include "core/kernels/reduce.h"
#include "tests/support/tensors.h"

namespace lockstep::distributed {
namespace {

using lockstep::testing::Floats;
using lockstep::testing::randn;

constexpr float kInf = std::numeric_limits<float>::infinity();

// Row i times row j, in double.
double product(const Tensor& x, int64_t i, int64_t j) {
  const Floats v = values(x);
  const int64_t n = x.size(1);
  double sum = 0;
  for (int64_t c = 0; c < n; ++c)
    sum += double{v[static_cast<size_t>(i * n + c)]} * v[static_cast<size_t>(j * n + c)];
  return sum;
}

TEST(LowRank, RowsBecomeOrthonormalHoweverLongTheyWere) {
  for (double size : {1e-42, 1e-30, 1.0, 1e30}) {
    const Tensor x = randn({4, 57}, 1, size);
    orthonormalise(x);
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 4; ++j)
        EXPECT_NEAR(product(x, i, j), i == j ? 1 : 0, 2e-7) << size << " " << i << " " << j;
  }
}

TEST(LowRank, NearlyParallelRowsBecomeOrthogonal) {
  const Tensor x = randn({3, 200}, 2);
  float* rows = x.mutable_data<float>();
  for (int64_t c = 0; c < 200; ++c) rows[200 + c] = rows[c] + 1e-4f * rows[400 + c];
  orthonormalise(x);
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < i; ++j) EXPECT_NEAR(product(x, i, j), 0, 2e-7);
  EXPECT_NEAR(product(x, 1, 1), 1, 2e-7);
}

TEST(LowRank, DependentAndUselessRowsBecomeZero) {
  const Tensor x = from_values<float>(
      {3, 0, 4, 6, 0, 8, 0, 0, 0, 1, kInf, 1, std::nanf(""), 0, 0, 0, 2, 0}, {6, 3});
  orthonormalise(x);
  const Floats expected = {0.6f, 0, 0.8f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(values(x)[i], expected[i], 1e-7) << i;
}

TEST(LowRank, OneRowOrNoColumnsAreFine) {
  const Tensor one = from_values<float>({-5}, {1, 1}), none = Tensor::empty({2, 0});
  orthonormalise(one);
  orthonormalise(none);
  EXPECT_EQ(values(one), Floats{-1});
}

TEST(LowRank, ABasisHasRowsOfLengthOneAndReplacesZeros) {
  const Tensor product_of = from_values<float>({3, 4, 0, 0, 1e-40f, 0, 0, 1e-40f}, {4, 2});
  const Tensor basis = zeros({4, 2}), again = zeros({4, 2}), later = zeros({4, 2});
  next_basis(basis, product_of, {.key = 7});
  next_basis(again, product_of, {.key = 7});
  next_basis(later, product_of, {.key = 7, .first = 8});
  EXPECT_FLOAT_EQ(values(basis)[0], 0.6f);
  EXPECT_FLOAT_EQ(values(basis)[1], 0.8f);
  EXPECT_FLOAT_EQ(values(basis)[4], 1);
  EXPECT_FLOAT_EQ(values(basis)[7], 1);
  EXPECT_NEAR(product(basis, 1, 1), 1, 1e-6);  // was zero
  EXPECT_EQ(values(basis), values(again));
  EXPECT_NE(values(basis), values(later));
}

// Eckart & Young: what r factors lose at least is Σ of the squares of the other singular values.
TEST(LowRank, AWarmStartConvergesToTheBestApproximation) {
  // M = U·diag(s)·Vᵀ with orthonormal columns in U and V.
  const Tensor u = randn({4, 40}, 3), v = randn({4, 30}, 4);
  orthonormalise(u);
  orthonormalise(v);
  const Floats s = {8, 4, 2, 1};
  const Tensor scaled = Tensor::empty({4, 30}), m = Tensor::empty({40, 30});
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t c = 0; c < 30; ++c)
      scaled.mutable_data<float>()[i * 30 + c] =
          s[static_cast<size_t>(i)] * v.data<float>()[i * 30 + c];
  kernel::matmul(m, u, scaled, {.trans_a = true});

  const Tensor basis = zeros({2, 30}), p = Tensor::empty({2, 40}), q = Tensor::empty({2, 30});
  next_basis(basis, basis, {.key = 1});
  double lost = 0;
  for (int step = 0; step < 20; ++step) {
    kernel::matmul(p, basis, m, {.trans_b = true});
    orthonormalise(p);
    kernel::matmul(q, p, m, {});
    next_basis(basis, q, {.key = 1});
    lost = kernel::sum_of_squares(m) - kernel::sum_of_squares(q);
    EXPECT_GE(lost, (4 + 1) * (1 - 1e-5)) << "better than is possible";
  }
  EXPECT_NEAR(lost, 4 + 1, 1e-4);
}

}  // namespace
}  // namespace lockstep::distributed
