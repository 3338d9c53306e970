#pragma once
#include "optim/flat_params.h"

namespace lockstep::distributed {

/// On a gradient's way: as backward left it (times the loss scale), as it goes on the wire, and
/// after the reduction.
enum class GradientStage { scaled, wire, reduced };

/// Looks at gradients, for probes. Called on the rank's own thread in the middle of backward, with
/// the values of a range of the flat buffer (in any floating dtype), which it must not change.
class GradientObserver {
 public:
  virtual ~GradientObserver() = default;
  virtual void see(GradientStage stage, const optim::FlatView& range, const Tensor& values) = 0;
};

}  // namespace lockstep::distributed
