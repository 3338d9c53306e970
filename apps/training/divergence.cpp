#include "apps/training/divergence.h"

#include "core/kernels/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::apps {
namespace {

using optim::FlatParams;
using optim::GradScaler;

// The first parameter, in order of construction, of which a value is not finite; null: none.
const optim::ParamSlice* first_bad(const FlatParams& params, const Tensor& values) {
  if (kernel::first_non_finite(values) < 0) return nullptr;
  for (auto slice = params.slices().rbegin(); slice != params.slices().rend(); ++slice)
    if (kernel::first_non_finite(values.slice(slice->begin, slice->end)) >= 0) return &*slice;
  return nullptr;
}

// What overflows on the way to the loss although every value is finite begins here.
const optim::ParamSlice& largest(const FlatParams& params) {
  const auto mean_square = [&](const optim::ParamSlice& slice) {
    return kernel::sum_of_squares(params.all().param.slice(slice.begin, slice.end)) /
           static_cast<double>(slice.end - slice.begin);
  };
  return *std::max_element(
      params.slices().begin(), params.slices().end(),
      [&](const auto& a, const auto& b) { return mean_square(a) < mean_square(b); });
}

bool finite_losses(const StepSeen& seen) {
  return std::isfinite(seen.loss) && std::isfinite(seen.val_loss.value_or(0));
}

std::string what(const StepSeen& seen, const optim::ParamSlice* dead) {
  if (std::isnan(seen.loss)) return "loss is NaN";
  if (std::isinf(seen.loss)) return "loss is infinite";
  if (!seen.verdict.finite) return "a gradient is not finite";
  return dead != nullptr ? "a parameter is not finite" : "validation loss is not finite";
}

std::string where(const StepSeen& seen, const optim::ParamSlice* dead, const FlatParams& params) {
  if (dead != nullptr) return dead->name + " (value)";
  if (seen.verdict.first_bad >= 0)
    return params.slices()[static_cast<size_t>(seen.verdict.first_bad)].name + " (gradient)";
  if (const auto* reduced = first_bad(params, params.all().grad))  // ranks' sums overflowed
    return reduced->name + " (gradient)";
  return fmt::format("no parameter and no gradient{}, the largest values in {}",
                     seen.tables ? " outside the tables" : "", largest(params).name);
}

std::string describe(const StepSeen& seen, const optim::ParamSlice* dead, const FlatParams& params,
                     const GradScaler& scaler) {
  const bool scaled_too_much = dead == nullptr && finite_losses(seen) &&
                               !scaler.options().dynamic && scaler.loss_scale() > 1;
  return fmt::format(
      "{} at step {}{}: first non-finite value in {}; {}", what(seen, dead), seen.step,
      scaler.skips() > 1 ? fmt::format(" after {} skipped steps in a row", scaler.skips()) : "",
      where(seen, dead, params),
      scaled_too_much ? "lower --scale, or use --scale dynamic"
      : seen.tables   ? "lower --lr or --table-lr, or use --clip 1 or --warmup"
                      : "lower --lr, or use --clip 1 or --warmup");
}

}  // namespace

std::optional<std::string> find_divergence(const StepSeen& seen, const FlatParams& params,
                                           const GradScaler& scaler) {
  if (std::isfinite(seen.loss) && seen.verdict.finite) return std::nullopt;
  const optim::ParamSlice* dead = first_bad(params, params.all().param);
  const bool skipped = !seen.verdict.finite && !scaler.failed();  // the next may do better
  if (skipped && dead == nullptr) return std::nullopt;
  return describe(seen, dead, params, scaler);
}

std::optional<std::string> find_divergence_at_end(const StepSeen& seen, const FlatParams& params,
                                                  const GradScaler& scaler) {
  const optim::ParamSlice* dead = first_bad(params, params.all().param);
  // A dynamic scale may not have settled yet; a fixed one never will.
  const bool hopeless = seen.updates == 0 && scaler.skips() > 0 && !scaler.options().dynamic;
  if (dead == nullptr && finite_losses(seen) && !hopeless) return std::nullopt;
  return describe(seen, dead, params, scaler);
}

}  // namespace lockstep::apps
