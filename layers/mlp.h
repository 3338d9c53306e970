#pragma once
#include "core/kernels/elementwise.h"
#include "layers/linear.h"

namespace lockstep::layers {

struct MlpOptions {
  int64_t hidden = 0;  ///< 0: four times the width
  bool bias = true;
  kernel::Gelu gelu = kernel::Gelu::exact;
  WeightInit init = normal(0.02);
  WeightInit projection_init = normal(0.02);  ///< of the layer that ends the residual branch
};

/// The feed-forward part of a transformer block: out(gelu(fc(x))). Parameters "fc.*", "out.*".
class Mlp final : public Module {
 public:
  Mlp(Initialiser& init, int64_t width, const MlpOptions& options = {});
  Tensor operator()(const Tensor& x) const;

 private:
  kernel::Gelu gelu_;
  Linear fc_, out_;
};

}  // namespace lockstep::layers
