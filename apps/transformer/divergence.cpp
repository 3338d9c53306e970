#include "apps/transformer/divergence.h"

#include "core/kernels/reduce.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep::apps {
namespace {

bool finite(const Tensor& flat, const optim::ParamSlice& slice) {
  return kernel::first_non_finite(flat.slice(slice.begin, slice.end)) < 0;
}

std::string first_non_finite(const optim::FlatParams& params) {
  const optim::FlatView& all = params.all();
  for (auto slice = params.slices().rbegin(); slice != params.slices().rend(); ++slice) {
    if (!finite(all.param, *slice)) return slice->name + " (value)";
    if (!finite(all.grad, *slice)) return slice->name + " (gradient)";
  }
  return "no parameter and no gradient";
}

}  // namespace

std::optional<std::string> find_divergence(int64_t step, double loss,
                                           const optim::StepVerdict& verdict,
                                           const optim::FlatParams& params) {
  if (std::isfinite(loss) && verdict.finite) return std::nullopt;
  const std::string what = std::isnan(loss)   ? "loss is NaN"
                           : std::isinf(loss) ? "loss is infinite"
                                              : "a gradient is not finite";
  return fmt::format(
      "{} at step {}: first non-finite value in {}; lower --lr, or use --clip 1 or --warmup", what,
      step, first_non_finite(params));
}

}  // namespace lockstep::apps
