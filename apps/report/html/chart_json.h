#pragma once
#include <nlohmann/json.hpp>

#include "apps/compare/chart.h"

namespace lockstep::apps {

/// A chart as chart.js takes it. Numbers have nine digits; NaN and infinities are the strings "nan"
/// "inf" "-inf". A line of more than 600 points is thinned: of those in one of 300 columns of the
/// chart the lowest, the highest and one that is not finite stay, and `points` says how many all
/// series had; else it is 0. UsageError naming the chart where lists of a series differ in length.
nlohmann::ordered_json chart_json(const Chart& chart);

}  // namespace lockstep::apps
