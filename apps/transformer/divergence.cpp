#include "apps/transformer/divergence.h"

#include "core/kernels/reduce.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep::apps {
namespace {

bool finite(const Tensor& flat, const optim::ParamSlice& slice) {
  return kernel::first_non_finite(flat.slice(slice.begin, slice.end)) < 0;
}

std::string first_non_finite(const optim::StepVerdict& verdict, const optim::FlatParams& params) {
  for (auto slice = params.slices().rbegin(); slice != params.slices().rend(); ++slice)
    if (!finite(params.all().param, *slice)) return slice->name + " (value)";
  if (verdict.first_bad >= 0)
    return params.slices()[static_cast<size_t>(verdict.first_bad)].name + " (gradient)";
  return "no parameter and no gradient";
}

}  // namespace

std::optional<std::string> find_divergence(int64_t step, double loss,
                                           const optim::StepVerdict& verdict,
                                           const optim::FlatParams& params,
                                           const optim::GradScaler& scaler) {
  if (std::isfinite(loss) && verdict.finite) return std::nullopt;
  if (!verdict.finite && !scaler.failed()) return std::nullopt;  // skipped; the next may do better
  const std::string what = std::isnan(loss)   ? "loss is NaN"
                           : std::isinf(loss) ? "loss is infinite"
                                              : "a gradient is not finite";
  const std::string skips =
      scaler.skips() > 1 ? fmt::format(" after {} skipped steps in a row", scaler.skips()) : "";
  return fmt::format(
      "{} at step {}{}: first non-finite value in {}; lower --lr, or use --clip 1 or --warmup",
      what, step, skips, first_non_finite(verdict, params));
}

}  // namespace lockstep::apps
