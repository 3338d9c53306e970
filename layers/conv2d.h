#pragma once
#include "core/kernels/convolution.h"
#include "layers/init.h"
#include "layers/module.h"

namespace lockstep::layers {

struct Conv2dOptions {
  Plane window = square(3);
  kernel::Convolution convolution = {};
  bool bias = true;  ///< starts at 0
  WeightInit init = {WeightInit::Rule::fan_in, Distribution::normal};
};

/// Convolution of images x [N, in, rows, columns] into [N, out, …]; of sequences where rows and the
/// window's rows are 1. Parameters "weight" [out, in / groups, window rows, window columns] and
/// "bias" [out].
class Conv2d final : public Module {
 public:
  Conv2d(Initialiser& init, int64_t in, int64_t out, const Conv2dOptions& options = {});
  Tensor operator()(const Tensor& x) const;
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }  ///< undefined when there is none

 private:
  Tensor weight_, bias_;
  kernel::Convolution options_;
};

}  // namespace lockstep::layers
