#include "apps/compare/statistics/fits.h"

#include "apps/compare/statistics/quantiles.h"
#include "core/check.h"

#include <algorithm>
#include <cmath>

namespace lockstep::apps::statistics {
namespace {

using Columns = std::vector<std::vector<double>>;

constexpr double kDependent = 1e-10;  // what is left of a column whose others are taken away

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void take_away(std::vector<double>& from, double times, std::span<const double> what) {
  for (size_t i = 0; i < from.size(); ++i) from[i] -= times * what[i];
}

bool all_finite(std::span<const double> values) {
  return std::ranges::all_of(values, [](double v) { return std::isfinite(v); });
}

// Of an upper triangle, row by row.
std::vector<double> inverse_of_triangle(const std::vector<double>& r, size_t p) {
  std::vector<double> inverse(p * p, 0.0);
  for (size_t column = 0; column < p; ++column)
    for (size_t row = column + 1; row-- > 0;) {
      double sum = row == column ? 1 : 0;
      for (size_t k = row + 1; k <= column; ++k) sum -= r[row * p + k] * inverse[k * p + column];
      inverse[row * p + column] = sum / r[row * p + row];
    }
  return inverse;
}

// √(x' (X'X)^-1 x), where (X'X)^-1 = R^-1 R^-T.
double leverage_root(const std::vector<double>& inverse, std::span<const double> x) {
  const size_t p = x.size();
  double sum = 0;
  for (size_t k = 0; k < p; ++k) {
    double z = 0;
    for (size_t j = 0; j < p; ++j) z += x[j] * inverse[j * p + k];
    sum += z * z;
  }
  return std::sqrt(sum);
}

std::vector<double> ones(size_t n) { return std::vector<double>(n, 1.0); }

}  // namespace

double Fit::at(std::span<const double> row) const {
  check(row.size() == coefficients.size(), "[compare.fit] a row; expected {} columns, got {}",
        coefficients.size(), row.size());
  return dot(row, coefficients);
}

Interval Fit::mean_at(std::span<const double> row) const {
  const double middle = at(row);
  const double t = student_quantile(0.5 + confidence / 2, static_cast<double>(degrees));
  const double half = t * residual_sd * leverage_root(inverse_root, row);
  return {middle - half, middle + half};
}

Interval Fit::next_at(std::span<const double> row) const {
  const double middle = at(row);
  const double t = student_quantile(0.5 + confidence / 2, static_cast<double>(degrees));
  const double half = t * residual_sd * std::hypot(1, leverage_root(inverse_root, row));
  return {middle - half, middle + half};
}

// Modified Gram-Schmidt, which is as accurate as Householder's when y is treated as one more
// column (Björck 1967).
Fit least_squares(const Columns& columns, std::span<const double> y, double confidence) {
  const size_t p = columns.size(), n = y.size();
  check(p >= 1 && n > p, "[compare.fit] expected more rows than the {} columns, got {}", p, n);
  for (const auto& column : columns)
    check(column.size() == n && all_finite(column),
          "[compare.fit] a column; expected {} finite values", n);
  check(all_finite(y), "[compare.fit] y; expected {} finite values", n);

  Columns q = columns;
  std::vector<double> r(p * p, 0.0), z(p), residuals(y.begin(), y.end());
  for (size_t j = 0; j < p; ++j) {
    const double before = std::sqrt(dot(columns[j], columns[j]));
    const double norm = std::sqrt(dot(q[j], q[j]));
    check(norm > kDependent * before && norm > 0,
          "[compare.fit] column {} is a combination of those before it", j);
    r[j * p + j] = norm;
    for (double& value : q[j]) value /= norm;
    for (size_t k = j + 1; k < p; ++k) take_away(q[k], r[j * p + k] = dot(q[j], q[k]), q[j]);
    take_away(residuals, z[j] = dot(q[j], residuals), q[j]);
  }

  Fit fit{.coefficients = std::vector<double>(p, 0.0),
          .residuals = std::move(residuals),
          .degrees = static_cast<int64_t>(n - p),
          .confidence = confidence,
          .inverse_root = inverse_of_triangle(r, p)};
  fit.residual_sd = std::sqrt(dot(fit.residuals, fit.residuals) / static_cast<double>(fit.degrees));
  for (size_t j = 0; j < p; ++j)
    for (size_t k = j; k < p; ++k) fit.coefficients[j] += fit.inverse_root[j * p + k] * z[k];
  for (size_t j = 0; j < p; ++j) {
    std::vector<double> unit(p, 0.0);
    unit[j] = 1;
    fit.intervals.push_back(fit.mean_at(unit));
  }
  return fit;
}

Fit fit_inverse(std::span<const double> x, std::span<const double> y, double confidence) {
  std::vector<double> inverse;
  for (const double value : x) inverse.push_back(1 / value);
  return least_squares({ones(x.size()), inverse}, y, confidence);
}

Fit fit_line(std::span<const double> x, std::span<const double> y, double confidence) {
  return least_squares({ones(x.size()), {x.begin(), x.end()}}, y, confidence);
}

Fit fit_power(std::span<const double> x, std::span<const double> y, double confidence) {
  std::vector<double> log_x, log_y;
  for (const double value : x) log_x.push_back(std::log(value));
  for (const double value : y) log_y.push_back(std::log(value));
  return least_squares({ones(x.size()), log_x}, log_y, confidence);
}

}  // namespace lockstep::apps::statistics
