#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/kernels/magnitudes.h"
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

/// How what receivers see of this rank's gradients, its code decoded, compares with the gradients.
struct Fidelity {
  double relative_error = 0;  ///< |sent - raw| / |raw|, in Euclidean norms
  double cosine = 1;          ///< between both
  double sent_share = 1;      ///< of elements that are not zero as sent
  /// Probed steps in a row in which the element that has waited longest was zero as sent.
  int64_t oldest_unsent = 0;
};

/// Counts the magnitudes of all gradients of one step, per parameter and stage: what a cast, a
/// scale or a reduction destroys, and where. To be handed to Reducer::observe() for that step. This
/// rank's view: the first three stages are its own, the last is everybody's.
class GradientProbe final : public GradientObserver {
 public:
  /// `grads`: the dtype that gradients are rounded to, by whose range `raw` and `scaled` are
  /// judged.
  GradientProbe(const optim::FlatParams& params, DType grads);

  /// Forgets what it saw. `loss_scale`: of the step to come, a power of two.
  void begin(double loss_scale);
  void see(GradientStage stage, const optim::FlatView& range, const Tensor& values) override;

  /// Of one parameter, by slice number.
  Magnitudes at(ProbeStage stage, int slice) const;
  /// Of all parameters.
  Magnitudes total(ProbeStage stage) const;
  /// Of all parameters, where they are sent in f32 or as codes; of the step that it saw last.
  Fidelity fidelity() const;

 private:
  const optim::FlatParams& params_;
  DType grads_;
  int raw_shift_ = 0;             // log2 of the loss scale
  std::array<Tensor, 3> counts_;  // by GradientStage: i64 [slices, kMagnitudes]
  void compare(int64_t begin, const Tensor& sent);

  std::array<DType, 3> dtypes_;
  std::vector<float> raw_;       // as it left backward; empty until it was seen
  std::vector<int64_t> unsent_;  // by element: probed steps since it was last sent
  struct {
    double raw = 0, sent = 0, dot = 0, error = 0;  // sums of squares and products
    int64_t elements = 0, non_zero = 0;
  } sums_;
};

}  // namespace lockstep::distributed
