#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "optim/flat_params.h"
#include "optim/grad_scaler.h"
#include "optim/verdict.h"

namespace lockstep::apps {

/// A step as all ranks saw it.
struct StepSeen {
  int64_t step = 0;  ///< steps done, from 1
  double loss = 0;
  std::optional<double> val_loss;
  optim::StepVerdict verdict;
  int64_t updates = 0;  ///< steps of the run that were applied
  bool tables = false;  ///< embedding tables are trained, too, which are no parameters
};

/// What ends a run whose loss or gradient is not finite, in one line that names the first
/// parameter, in order of construction, that holds such a value. Nothing when all is well, nor
/// while the scaler that has seen the step may still help by skipping it and scaling less: it
/// cannot once a parameter is not finite.
std::optional<std::string> find_divergence(const StepSeen& seen, const optim::FlatParams& params,
                                           const optim::GradScaler& scaler);

/// The same for a run that ends with this step: what it leaves must be of use. A parameter or a
/// loss that is not finite is a failure, and so is a fixed scale that had every step skipped.
std::optional<std::string> find_divergence_at_end(const StepSeen& seen,
                                                  const optim::FlatParams& params,
                                                  const optim::GradScaler& scaler);

}  // namespace lockstep::apps
