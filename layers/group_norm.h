#pragma once
#include "autograd/ops.h"
#include "layers/init.h"
#include "layers/module.h"

namespace lockstep::layers {

struct GroupNormOptions {
  float eps = 1e-5f;
  bool affine = true;  ///< parameters "weight" (starts at 1) and "bias" (starts at 0)
};

/// Group normalisation of x[N, C, L…] (Wu & He 2018, arXiv:1803.08494): the C / groups channels of
/// a group of each sample together, so that nothing depends on the other samples of a batch.
class GroupNorm final : public Module {
 public:
  GroupNorm(Initialiser& init, int64_t groups, int64_t channels,
            const GroupNormOptions& options = {});
  Tensor operator()(const Tensor& x) const;

 private:
  int64_t groups_, channels_;
  float eps_;
  Tensor weight_, bias_;
};

}  // namespace lockstep::layers
