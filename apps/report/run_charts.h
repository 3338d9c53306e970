#pragma once
#include <vector>

#include "apps/compare/chart.h"
#include "apps/report/run_files.h"

namespace lockstep::apps {

/// What a run measures as it goes on, as charts with a series for each run.
struct RunCharts {
  std::vector<Chart> training, validation;  ///< against step, samples, bytes, time, modelled time
  std::vector<Chart> others;                ///< accuracy or AUC; staleness
};

/// Reads the metrics again. Charts for which no run has a value are left out.
RunCharts chart_runs(const std::vector<RunFiles>& runs);

}  // namespace lockstep::apps
