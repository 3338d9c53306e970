#include "core/kernels/norm.h"

#include "core/kernels/elementwise.h"
#include "tests/support/kernel_calls.h"
#include "tests/support/kernel_test.h"
#include "tests/support/naive.h"

namespace lockstep::test {
namespace {

constexpr float kEps = 1e-5f;

class Norm : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Norm);

TEST_P(Norm, ForwardOfAllShapes) {
  for (int64_t rows : {0, 1, 5, 70})
    for (int64_t width : {1, 2, 7, 16, 17, 33, 128, 384, 1000})
      for (Placed placed : {Placed::aligned, Placed::unaligned}) {
        const Tensor x = random_tensor({rows, width}, 1, 2, placed),
                     gamma = random_tensor({width}, 2), beta = random_tensor({width}, 3);
        for (const Tensor& b : {beta, Tensor()}) {
          const Normed got = layer_norm(x, gamma, b);
          const naive::Norm expected = naive::layer_norm(
              doubles(x), doubles(gamma), b.defined() ? doubles(b) : std::vector<double>(), rows,
              width, kEps);
          expect_close(got.out, expected.out, 1e-5, 1e-5, "out");
          expect_close(got.mean, expected.mean, 1e-6, 1e-6, "mean");
          expect_close(got.rstd, expected.rstd, 1e-5, 0, "rstd");
        }
      }
}

TEST_P(Norm, ResidualIsTheSumThenTheNorm) {
  for (int64_t width : {1, 17, 384}) {
    const Tensor x = random_tensor({40, width}, 4), residual = random_tensor({40, width}, 5),
                 gamma = random_tensor({width}, 6), beta = random_tensor({width}, 7),
                 sum = empty_like(x), expected_sum = empty_like(x);
    const Normed got{empty_like(x), Tensor::empty({40}), Tensor::empty({40})};
    kernel::residual_layer_norm(got.out, sum, got.mean, got.rstd, x, residual, gamma, beta, kEps);
    kernel::binary(expected_sum, x, residual, kernel::Binary::add);
    const Normed expected = layer_norm(expected_sum, gamma, beta);
    EXPECT_EQ(values(sum), values(expected_sum));
    EXPECT_EQ(values(got.out), values(expected.out));
    EXPECT_EQ(values(got.mean), values(expected.mean));
    EXPECT_EQ(values(got.rstd), values(expected.rstd));
  }
}

TEST_P(Norm, BackwardOfAllShapes) {
  for (int64_t rows : {0, 1, 5, 200})
    for (int64_t width : {2, 7, 16, 17, 33, 128, 384}) {
      const Tensor x = random_tensor({rows, width}, 8), gamma = random_tensor({width}, 9),
                   dy = random_tensor({rows, width}, 10), dsum = random_tensor({rows, width}, 11),
                   dx = empty_like(x), dgamma = full({width}, NAN), dbeta = full({width}, NAN);
      const Normed n = layer_norm(x, gamma, Tensor());
      naive::NormGradient expected =
          naive::layer_norm_backward(doubles(dy), doubles(x), doubles(gamma), rows, width, kEps);
      kernel::layer_norm_backward(dx, dgamma, dbeta, dy, Tensor(), x, n.mean, n.rstd, gamma);
      // Two numbers may lie close together: then 1 / deviation is large and so are the terms.
      const double slack = width == 2 ? 1e-2 : 2e-5;
      expect_close(dx, expected.dx, slack, slack, "dx");
      expect_close(dgamma, expected.dgamma, 1e-4, 1e-4, "dgamma");
      expect_close(dbeta, expected.dbeta, 1e-5, 1e-5, "dbeta");
      kernel::layer_norm_backward(dx, dgamma, Tensor(), dy, dsum, x, n.mean, n.rstd, gamma);
      const std::vector<double> straight = doubles(dsum);
      for (size_t i = 0; i < straight.size(); ++i) expected.dx[i] += straight[i];
      expect_close(dx, expected.dx, slack, slack, "dx with what arrives at the sum");
    }
}

TEST_P(Norm, BackwardRepeatsBitForBit) {
  const Tensor x = random_tensor({500, 64}, 12), gamma = random_tensor({64}, 13),
               dy = random_tensor({500, 64}, 14);
  const Normed n = layer_norm(x, gamma, Tensor());
  std::vector<std::vector<float>> seen;
  for (int i = 0; i < 3; ++i) {
    const Tensor dx = empty_like(x), dgamma = zeros({64}), dbeta = zeros({64});
    kernel::layer_norm_backward(dx, dgamma, dbeta, dy, Tensor(), x, n.mean, n.rstd, gamma);
    seen.push_back(values(dgamma));
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST_P(Norm, WrongShapesAreRefused) {
  const Tensor x = zeros({2, 3}), m = zeros({2}), gamma = zeros({3});
  EXPECT_THROW(kernel::layer_norm(x, m, m, x, zeros({2}), Tensor(), kEps), UsageError);
  EXPECT_THROW(kernel::layer_norm(x, zeros({3}), m, x, gamma, Tensor(), kEps), UsageError);
  EXPECT_THROW(kernel::layer_norm(zeros({2, 0}), m, m, zeros({2, 0}), zeros({0}), Tensor(), kEps),
               UsageError);
}

}  // namespace
}  // namespace lockstep::test
