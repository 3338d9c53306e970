#pragma once
#include <span>
#include <vector>

#include "apps/compare/claim.h"
#include "apps/compare/statistics/paired.h"

/// Learning rates: every arm of a comparison picks its own from the same grid, on seeds that are
/// not those that are reported.
namespace lockstep::apps {

/// The arm at each rate and tuning seed.
std::vector<RunRequest> tuning_runs(const RunRequest& arm, std::span<const double> rates,
                                    const Setting& setting);
/// The rate with the lowest mean validation loss over the tuning seeds; one that diverged is no
/// candidate. NaN where all did.
double best_rate(const RunRequest& arm, std::span<const double> rates, const Setting& setting,
                 Results& results);

/// Validation losses of the arm by reporting seed; NaN where it diverged.
statistics::BySeed losses_of(const RunRequest& arm, const Setting& setting, Results& results);
/// The arm at each reporting seed.
std::vector<RunRequest> reporting_runs(const RunRequest& arm, const Setting& setting);

}  // namespace lockstep::apps
