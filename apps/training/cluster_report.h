#pragma once
#include <nlohmann/json.hpp>

#include <string>

#include "apps/report/run_directory.h"
#include "distributed/comm/virtual_cluster/run.h"

namespace lockstep::apps {

/// What a step of one rank adds to its line in metrics.jsonl.
void add_times(StepRecord& record, double now,
               const distributed::virtual_cluster::StepTimes& times);
/// When the last rank ended, in modelled seconds.
double virtual_seconds(const distributed::virtual_cluster::Run& run);
/// What the run adds to summary.json: virtual_s, which began at `begin`, and the ranks' totals.
nlohmann::ordered_json cluster_json(const distributed::virtual_cluster::Run& run, double begin);
/// Writes both files; returns what a person is shown. All ranks must have ended.
std::string report_cluster(const distributed::virtual_cluster::Run& run,
                           const std::string& directory);

}  // namespace lockstep::apps
