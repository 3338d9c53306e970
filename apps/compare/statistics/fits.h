#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/compare/verdict.h"

/// Least squares for the few shapes that claims have, with normal residuals assumed.
namespace lockstep::apps::statistics {

/// A straight combination of a few columns.
struct Fit {
  std::vector<double> coefficients;
  std::vector<Interval> intervals;  ///< of each, Student's
  std::vector<double> residuals;    ///< y - fitted, in the order given
  double residual_sd = 0;           ///< with n - columns
  int64_t degrees = 0;              ///< n - columns
  double confidence = 0;
  std::vector<double> inverse_root;  ///< columns x columns, rows of R^-1: for `mean_at`

  double at(std::span<const double> row) const;
  /// Of the fitted mean at a row of columns, and of one more measurement there.
  Interval mean_at(std::span<const double> row) const;
  Interval next_at(std::span<const double> row) const;
};

/// y ≈ Σ c_j columns[j]. UsageError for fewer rows than columns + 1 (no residual to learn the
/// spread from), a value that is not finite, or columns that depend on each other.
Fit least_squares(const std::vector<std::vector<double>>& columns, std::span<const double> y,
                  double confidence);

/// y ≈ a + b/x: what k micro-batches cost each, with b a fixed cost a step.
Fit fit_inverse(std::span<const double> x, std::span<const double> y, double confidence);
/// y ≈ a + b·x.
Fit fit_line(std::span<const double> x, std::span<const double> y, double confidence);
/// y ≈ c·x^e, straight on logarithms: coefficients are {ln c, e}. All values positive.
Fit fit_power(std::span<const double> x, std::span<const double> y, double confidence);

}  // namespace lockstep::apps::statistics
