#pragma once
#include <string>
#include <vector>

#include "apps/report/run_files.h"

namespace lockstep::apps {

/// Runs side by side as one HTML file that needs no network: what they are, where their options
/// differ, training and validation loss against step, samples, bytes, time and modelled time.
std::string runs_page(const std::vector<RunFiles>& runs);

}  // namespace lockstep::apps
