#pragma once
#include <nlohmann/json.hpp>

#include "distributed/strategy_report.h"

namespace lockstep::apps {

/// What a strategy tells, as metrics.jsonl and summary.json hold it under `sync`: its numbers by
/// name, and `histograms`: how often 0, 1, … came up, by name.
nlohmann::ordered_json sync_json(const distributed::StrategyReport& report);

}  // namespace lockstep::apps
