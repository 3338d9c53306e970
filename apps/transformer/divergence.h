#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "optim/flat_params.h"
#include "optim/grad_scaler.h"
#include "optim/verdict.h"

namespace lockstep::apps {

/// What ends a run whose loss or gradient is not finite, in one line that names the first
/// parameter, in order of construction, that holds such a value. Nothing when all is well, nor
/// while the scaler that has seen the step may still help by skipping it and scaling less.
std::optional<std::string> find_divergence(int64_t step, double loss,
                                           const optim::StepVerdict& verdict,
                                           const optim::FlatParams& params,
                                           const optim::GradScaler& scaler);

}  // namespace lockstep::apps
