#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/kernels/magnitudes.h"
#include "distributed/fidelity.h"
#include "distributed/observer.h"

namespace lockstep::distributed {

/// How gradients look on their way: unscaled, as backward left them (times the loss scale), on the
/// wire, and summed. The first is told from the second: a power of two moves every magnitude alike.
enum class ProbeStage { raw, scaled, wire, reduced };
inline constexpr int kProbeStages = 4;
constexpr std::string_view name_of(ProbeStage stage) {
  constexpr std::string_view names[] = {"raw", "scaled", "wire", "reduced"};
  return names[static_cast<int>(stage)];
}

/// What values of one dtype look like.
struct Magnitudes {
  DType dtype = DType::f32;
  int64_t total = 0, zeros = 0, subnormals = 0, infinities = 0, nans = 0;
  /// by_power[k]: non-zero finite values of magnitude [2^(k-127), 2^(k-126)); [0] also all below.
  std::array<int64_t, 255> by_power{};

  double share(int64_t count) const;  ///< of the total; 0 of nothing
  Magnitudes& operator+=(const Magnitudes& other);
};

/// Counts the magnitudes of all gradients of one step, per parameter and stage: what a cast, a
/// scale or a reduction destroys, and where. To be handed to Reducer::observe() for that step. This
/// rank's view: the first three stages are its own, the last is everybody's.
class GradientProbe final : public GradientObserver {
 public:
  /// `grads`: the dtype that gradients are rounded to, by whose range `raw` and `scaled` are
  /// judged.
  /// `ranks`: that gradients are summed over.
  GradientProbe(const optim::FlatParams& params, DType grads, int ranks = 1);

  /// Forgets what it saw. `loss_scale`: of the step to come, a power of two.
  void begin(double loss_scale);
  void see(GradientStage stage, const optim::FlatView& range, const Tensor& values) override;

  /// Of one parameter, by slice number.
  Magnitudes at(ProbeStage stage, int slice) const;
  /// Of all parameters.
  Magnitudes total(ProbeStage stage) const;
  /// What became of gradients that are sent in f32 or as codes, in the step that it saw last.
  const FidelityMeter& fidelity() const { return fidelity_; }
  int ranks() const { return ranks_; }

 private:
  const optim::FlatParams& params_;
  DType grads_;
  int ranks_;
  int raw_shift_ = 0;             // log2 of the loss scale
  std::array<Tensor, 3> counts_;  // by GradientStage: i64 [slices, kMagnitudes]
  std::array<DType, 3> dtypes_;
  FidelityMeter fidelity_;
};

}  // namespace lockstep::distributed
