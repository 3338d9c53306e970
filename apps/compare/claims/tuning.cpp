#include "apps/compare/claims/tuning.h"

#include <cmath>
#include <limits>

namespace lockstep::apps {
namespace {

RunRequest at(const RunRequest& arm, double rate, int64_t seed) {
  return arm.with("--lr", rate).with("--seed", seed);
}

}  // namespace

std::vector<RunRequest> tuning_runs(const RunRequest& arm, std::span<const double> rates,
                                    const Setting& setting) {
  std::vector<RunRequest> runs;
  for (const double rate : rates)
    for (const int64_t seed : setting.tuning_seeds) runs.push_back(at(arm, rate, seed));
  return runs;
}

double best_rate(const RunRequest& arm, std::span<const double> rates, const Setting& setting,
                 Results& results) {
  double best = std::numeric_limits<double>::quiet_NaN(), lowest = INFINITY;
  for (const double rate : rates) {
    double mean = 0;
    for (const int64_t seed : setting.tuning_seeds)
      mean += results.result(at(arm, rate, seed)).figure("val_loss") /
              static_cast<double>(setting.tuning_seeds.size());
    if (!(mean < lowest)) continue;  // NaN: it diverged
    lowest = mean;
    best = rate;
  }
  return best;
}

statistics::BySeed losses_of(const RunRequest& arm, const Setting& setting, Results& results) {
  statistics::BySeed losses;
  for (const int64_t seed : setting.seeds)
    losses[seed] = results.result(arm.with("--seed", seed)).figure("val_loss");
  return losses;
}

std::vector<RunRequest> reporting_runs(const RunRequest& arm, const Setting& setting) {
  std::vector<RunRequest> runs;
  for (const int64_t seed : setting.seeds) runs.push_back(arm.with("--seed", seed));
  return runs;
}

}  // namespace lockstep::apps
