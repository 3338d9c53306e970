#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "optim/flat_params.h"
#include "optim/verdict.h"

namespace lockstep::apps {

/// What went wrong when a step's loss or gradient is not finite, in one line that names the first
/// parameter, in order of construction, that holds such a value; nothing when all is well.
std::optional<std::string> find_divergence(int64_t step, double loss,
                                           const optim::StepVerdict& verdict,
                                           const optim::FlatParams& params);

}  // namespace lockstep::apps
