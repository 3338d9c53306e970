#include "distributed/gradient_probe.h"

#include <algorithm>
#include <cmath>

#include "core/kernels/elementwise.h"

namespace lockstep::distributed {
namespace {

constexpr int kBias = 127;  // of an f32 exponent

// The exponent field of the least normal number, and of the magnitudes that round to zero.
struct Limits {
  int normal, least;
};
Limits limits_of(DType dtype) {
  if (dtype == DType::f16) return {kBias - 14, kBias - 25};
  return {1, 0};  // of bf16 and f32; their subnormals are not told from each other
}

Magnitudes from_counts(const int64_t* counts, DType dtype, int shift) {
  const Limits limits = limits_of(dtype);
  Magnitudes m{.dtype = dtype,
               .zeros = counts[kernel::kZeros],
               .infinities = counts[kernel::kInfinities],
               .nans = counts[kernel::kNans]};
  m.total = m.zeros + m.infinities + m.nans;
  for (int e = 0; e < kernel::kInfinities; ++e) {
    const int at = e - shift;
    m.total += counts[e];
    if (at < limits.least) {
      m.zeros += counts[e];
      continue;
    }
    if (at < limits.normal) m.subnormals += counts[e];
    m.by_power[static_cast<size_t>(std::clamp(at, 0, static_cast<int>(kernel::kInfinities) - 1))] +=
        counts[e];
  }
  return m;
}

std::vector<float> floats_of(const Tensor& x) {
  if (x.dtype() == DType::f32) return values(x);
  const Tensor wide = Tensor::empty(x.shape());
  kernel::cast(wide, x);
  return values(wide);
}

}  // namespace

double Magnitudes::share(int64_t count) const {
  return total == 0 ? 0 : static_cast<double>(count) / static_cast<double>(total);
}

Magnitudes& Magnitudes::operator+=(const Magnitudes& other) {
  dtype = other.dtype;
  total += other.total;
  zeros += other.zeros;
  subnormals += other.subnormals;
  infinities += other.infinities;
  nans += other.nans;
  for (size_t i = 0; i < by_power.size(); ++i) by_power[i] += other.by_power[i];
  return *this;
}

GradientProbe::GradientProbe(const optim::FlatParams& params, DType grads, int ranks)
    : params_(params), grads_(grads), ranks_(ranks), fidelity_(params.all().numel()) {
  for (Tensor& counts : counts_)
    counts = zeros({static_cast<int64_t>(params.slices().size()), kernel::kMagnitudes}, DType::i64);
  dtypes_.fill(grads);
}

void GradientProbe::begin(double loss_scale) {
  raw_shift_ = std::ilogb(loss_scale);
  for (const Tensor& counts : counts_) kernel::fill(counts, 0);
  fidelity_.begin();
}

void GradientProbe::see(GradientStage stage, const optim::FlatView& range, const Tensor& values) {
  const auto s = static_cast<size_t>(stage);
  if (stage == GradientStage::scaled)
    fidelity_.raw(range.offset, floats_of(values));
  else if (values.dtype() == DType::f32 && stage == GradientStage::wire)
    fidelity_.sent(range.offset, floats_of(values));
  else if (stage == GradientStage::reduced)
    fidelity_.summed(range.offset, floats_of(values));
  dtypes_[s] = stage == GradientStage::scaled ? grads_ : values.dtype();
  for (size_t i = 0; i < range.slices.size(); ++i) {
    const optim::ParamSlice& slice = range.slices[i];
    const int64_t begin = std::max(slice.begin - range.offset, int64_t{0}),
                  end = std::min(slice.end - range.offset, values.numel());
    const int64_t row = range.first_slice + static_cast<int64_t>(i);
    kernel::count_magnitudes(counts_[s].slice(row, row + 1).reshape({kernel::kMagnitudes}),
                             values.slice(begin, end));
  }
}

Magnitudes GradientProbe::at(ProbeStage stage, int slice) const {
  const auto s = static_cast<size_t>(stage == ProbeStage::wire      ? GradientStage::wire
                                     : stage == ProbeStage::reduced ? GradientStage::reduced
                                                                    : GradientStage::scaled);
  return from_counts(counts_[s].data<int64_t>() + slice * kernel::kMagnitudes, dtypes_[s],
                     stage == ProbeStage::raw ? raw_shift_ : 0);
}

Magnitudes GradientProbe::total(ProbeStage stage) const {
  Magnitudes sum;
  for (int i = 0; i < static_cast<int>(params_.slices().size()); ++i) sum += at(stage, i);
  return sum;
}

}  // namespace lockstep::distributed
