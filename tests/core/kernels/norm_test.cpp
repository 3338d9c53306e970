#include "core/kernels/norm.h"

#include "core/kernels/elementwise.h"
#include "tests/support/kernel_test.h"
#include "tests/support/naive.h"

namespace lockstep::test {
namespace {

constexpr float kEps = 1e-5f;

class Norm : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Norm);

struct Normed {
  Tensor out, mean, rstd;
};
Normed layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta) {
  const Normed n{empty_like(x), Tensor::empty({x.shape().rows()}),
                 Tensor::empty({x.shape().rows()})};
  kernel::layer_norm(n.out, n.mean, n.rstd, x, gamma, beta, kEps);
  return n;
}

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

TEST_P(Norm, KnownFaults_O28_LayerNormWithALargeMean) {
  const Tensor x = from_values<float>({40000, 40001, 40002, 40003, 40000, 40000, 40000, 40000},
                                      {2, 4}),
               gamma = full({4}, 1);
  const Normed n = layer_norm(x, gamma, zeros({4}));
  expect_close(n.out.slice(0, 1), {-1.3416354, -0.4472118, 0.4472118, 1.3416354}, 0, 1e-4);
  EXPECT_EQ(values(n.out.slice(1, 2)), std::vector<float>(4, 0.0f))
      << "a constant row gives exactly 0";

  const Tensor dy = random_tensor({2, 4}, 15), dx = empty_like(x), dgamma = zeros({4}),
               dbeta = zeros({4});
  kernel::layer_norm_backward(dx, dgamma, dbeta, dy, Tensor(), x, n.mean, n.rstd, gamma);
  for (const Tensor& t : {dx, dgamma, dbeta})
    for (float v : values(t)) EXPECT_TRUE(std::isfinite(v));

  // Constant rows of every width and of numbers that are not exact.
  for (int64_t width : {3, 17, 100, 384, 1000})
    for (double level : {0.1, 40000.1, -1e6}) {
      const Normed flat = layer_norm(full({3, width}, level), full({width}, 1), Tensor());
      EXPECT_EQ(values(flat.out), std::vector<float>(3 * width, 0.0f)) << width << " of " << level;
    }
}

TEST_P(Norm, KnownFaults_O28_VarianceOfManyCloseNumbers) {
  const int64_t n = 32768;
  const Tensor x = random_tensor({1, n}, 16, 0.01);
  for (int64_t i = 0; i < n; ++i) x.mutable_data<float>()[i] += 100.0f;
  const Normed got = layer_norm(x, full({n}, 1), Tensor());
  const double rstd = values(got.rstd)[0], variance = 1 / (rstd * rstd) - kEps;
  EXPECT_NEAR(variance, 1e-4, 1e-6) << "E[x^2] - E[x]^2 would give 0";
  EXPECT_NEAR(values(got.mean)[0], 100, 1e-3);
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
