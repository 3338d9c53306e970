#pragma once
#include <vector>

#include "apps/compare/claim.h"

namespace lockstep::apps {

/// The rule of B1c. `growth`: the measured step of 8 ranks over that of one; `laws`: the modelled
/// mean step time of each law by number of ranks, and what order statistics expect, in the same
/// order.
struct Waiting {
  std::vector<std::vector<double>> modelled, expected;
};
Verdict judge_waiting(const Figure& growth, const Waiting& laws);

/// Mean of the largest of n: exponential (f·H_n + 1 - f), lognormal of mean 1 (numerically), Pareto
/// of mean 1 and tail alpha (n-th order statistic, in closed form).
double expected_exponential(int n, double fraction);
double expected_lognormal(int n, double sigma);
double expected_pareto(int n, double alpha);

}  // namespace lockstep::apps
