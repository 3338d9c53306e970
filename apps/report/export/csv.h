#pragma once
#include <string>
#include <vector>

#include "apps/report/run_files.h"

namespace lockstep::apps {

/// The metrics of runs as one CSV file (RFC 4180, but with \n): a line for each run's each step,
/// the columns `run`, `step` and the scalars of all runs. A number reads back as the same number
/// under every locale; what was not finite is `nan`, what a step does not tell is empty.
void write_csv(const std::string& path, const std::vector<RunFiles>& runs);

}  // namespace lockstep::apps
