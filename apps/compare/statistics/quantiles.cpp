#include "apps/compare/statistics/quantiles.h"

#include "core/check.h"

#include <boost/math/distributions/beta.hpp>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>

#include <cmath>

namespace lockstep::apps::statistics {
namespace {

namespace distributions = boost::math;

void check_probability(double p) {
  check(p > 0 && p < 1, "[compare.quantile] a probability; expected 0 < p < 1, got {}", p);
}
void check_positive(double x) {
  check(x > 0 && std::isfinite(x), "[compare.quantile] a shape; expected a positive number, got {}",
        x);
}

}  // namespace

double student_quantile(double p, double degrees) {
  check_probability(p);
  check_positive(degrees);
  return distributions::quantile(distributions::students_t(degrees), p);
}

double student_above(double t, double degrees) {
  check_positive(degrees);
  check(!std::isnan(t), "[compare.quantile] t; expected a number, got NaN");
  if (std::isinf(t)) return t > 0 ? 0 : 1;
  return distributions::cdf(distributions::complement(distributions::students_t(degrees), t));
}

double normal_quantile(double p) {
  check_probability(p);
  return distributions::quantile(distributions::normal(), p);
}

double beta_quantile(double p, double a, double b) {
  check_probability(p);
  check_positive(a);
  check_positive(b);
  return distributions::quantile(distributions::beta_distribution<>(a, b), p);
}

double fair_binomial_below(int64_t k, int64_t n) {
  check(n > 0 && k >= 0 && k <= n, "[compare.quantile] {} of {}; expected 0 <= k <= n", k, n);
  return distributions::cdf(distributions::binomial(static_cast<double>(n), 0.5),
                            static_cast<double>(k));
}

double sidak_level(double level, int64_t family) {
  check_probability(level);
  check(family >= 1, "[compare.quantile] a family; expected one member at least, got {}", family);
  return -std::expm1(std::log1p(-level) / static_cast<double>(family));
}

}  // namespace lockstep::apps::statistics
