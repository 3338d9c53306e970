#pragma once
#include <cstdint>

/// Distributions that intervals and tests are made of. Degrees of freedom and shapes are positive,
/// probabilities strictly between 0 and 1; anything else is a UsageError.
namespace lockstep::apps::statistics {

/// t with P(T <= t) = p.
double student_quantile(double p, double degrees);
/// P(T > t); infinite t are allowed.
double student_above(double t, double degrees);
double normal_quantile(double p);
double beta_quantile(double p, double a, double b);
/// P(at most k of n) where each happens with probability 1/2.
double fair_binomial_below(int64_t k, int64_t n);

/// The level of each of `family` tests or intervals which all together err with probability at
/// most `level` (Šidák 1967): 1 - (1 - level)^(1/family).
double sidak_level(double level, int64_t family);

}  // namespace lockstep::apps::statistics
