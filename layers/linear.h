#pragma once
#include "layers/init.h"
#include "layers/module.h"

namespace lockstep::layers {

struct LinearOptions {
  bool bias = true;  ///< starts at 0
  WeightInit init = {};
};

/// y[..., out] = x[..., in] · weight[out, in]ᵀ + bias[out]. Parameters "weight", "bias".
class Linear final : public Module {
 public:
  Linear(Initialiser& init, int64_t in, int64_t out, const LinearOptions& options = {});
  Tensor operator()(const Tensor& x) const;
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }  ///< undefined when there is none

 private:
  Tensor weight_, bias_;
};

}  // namespace lockstep::layers
