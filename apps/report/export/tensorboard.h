#pragma once
#include <string>
#include <vector>

#include "apps/report/run_files.h"

namespace lockstep::apps {

/// The metrics of runs as event files for `tensorboard --logdir DIRECTORY`: a folder for each run,
/// named after it, whose event files this replaces. A tag for each scalar
/// ("probe/overall/wire/zeros") in fp32; what was not finite is NaN. Where the steps of a run go
/// back, as they do after a fallback, a new file announces it, so that a viewer drops what was made
/// again. SystemError(file) when something cannot be written.
void write_tensorboard(const std::string& directory, const std::vector<RunFiles>& runs);

}  // namespace lockstep::apps
