#include "apps/compare/statistics/fits.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>

#include "core/check.h"

namespace lockstep::apps::statistics {
namespace {

// Anscombe (1973), first set: intercept 3.0001 (1.1247), slope 0.5001 (0.1179), residual 1.237.
const std::vector<double> kX{10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5};
const std::vector<double> kY{8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68};

TEST(Fits, AreAnscombes) {
  const Fit fit = fit_line(kX, kY, 0.95);
  EXPECT_NEAR(fit.coefficients[0], 3.0001, 1e-4);
  EXPECT_NEAR(fit.coefficients[1], 0.5001, 1e-4);
  EXPECT_NEAR(fit.residual_sd, 1.2366, 1e-4);
  EXPECT_EQ(fit.degrees, 9);
  const double t = 2.262157;  // 9 degrees of freedom
  EXPECT_NEAR(fit.intervals[0].high - fit.coefficients[0], t * 1.1247, 1e-3);
  EXPECT_NEAR(fit.intervals[1].high - fit.coefficients[1], t * 0.1179, 1e-3);
  // Textbook form: s·√(1/n + (x - mean)²/Sxx), Sxx = 110 around 9.
  const std::vector<double> row{1, 14};
  EXPECT_NEAR(fit.mean_at(row).high - fit.at(row),
              t * fit.residual_sd * std::sqrt(1 / 11.0 + 25 / 110.0), 1e-6);
  EXPECT_NEAR(fit.next_at(row).high - fit.at(row),
              t * fit.residual_sd * std::sqrt(1 + 1 / 11.0 + 25 / 110.0), 1e-6);
}

TEST(Fits, AgreeWithEigenOnThreeColumns) {
  std::vector<std::vector<double>> columns(3);
  std::vector<double> y;
  Eigen::MatrixXd x(12, 3);
  Eigen::VectorXd v(12);
  for (int i = 0; i < 12; ++i) {
    const double row[] = {1.0, 1.0 / (i + 1), std::sin(i)};
    for (int j = 0; j < 3; ++j) {
      columns[static_cast<size_t>(j)].push_back(row[j]);
      x(i, j) = row[j];
    }
    v(i) = 0.3 * i + std::cos(7 * i);
    y.push_back(v(i));
  }
  const Fit fit = least_squares(columns, y, 0.9);
  const Eigen::VectorXd oracle = x.colPivHouseholderQr().solve(v);
  for (int j = 0; j < 3; ++j)
    EXPECT_NEAR(fit.coefficients[static_cast<size_t>(j)], oracle(j), 1e-10);
  const Eigen::VectorXd residuals = v - x * oracle;
  EXPECT_NEAR(fit.residual_sd, std::sqrt(residuals.squaredNorm() / 9), 1e-10);
  for (int i = 0; i < 12; ++i)
    EXPECT_NEAR(fit.residuals[static_cast<size_t>(i)], residuals(i), 1e-10);
}

TEST(Fits, FindTheLawThatMadeTheNumbers) {
  std::vector<double> k{1, 2, 4, 8, 16}, cost, error;
  for (const double x : k) {
    cost.push_back(3 + 5 / x);
    error.push_back(2 * std::pow(x, -0.5));
  }
  const Fit inverse = fit_inverse(k, cost, 0.95);
  EXPECT_NEAR(inverse.coefficients[0], 3, 1e-12);
  EXPECT_NEAR(inverse.coefficients[1], 5, 1e-12);
  EXPECT_NEAR(inverse.at(std::vector{1, 1 / 7.0}), 3 + 5 / 7.0, 1e-12);
  const Fit power = fit_power(k, error, 0.95);
  EXPECT_NEAR(std::exp(power.coefficients[0]), 2, 1e-12);
  EXPECT_NEAR(power.coefficients[1], -0.5, 1e-12);
}

TEST(Fits, RefuseWhatHasNoAnswer) {
  EXPECT_THROW(fit_line(std::vector{1.0, 2.0}, std::vector{1.0, 2.0}, 0.95), UsageError);
  EXPECT_THROW(fit_line(std::vector{2.0, 2.0, 2.0}, std::vector{1.0, 2.0, 3.0}, 0.95), UsageError);
  EXPECT_THROW(fit_power(std::vector{1.0, 2.0, 3.0}, std::vector{1.0, -2.0, 3.0}, 0.95),
               UsageError);
  EXPECT_THROW(fit_line(std::vector{1.0, 2.0}, std::vector{1.0, 2.0, 3.0}, 0.95), UsageError);
}

}  // namespace
}  // namespace lockstep::apps::statistics
