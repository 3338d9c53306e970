#pragma once
#include "layers/module.h"

namespace lockstep::layers {

/// Which samples a batch holds, for randomness that must not depend on how a global batch is split.
struct SampleKey {
  uint64_t seed = 0;         ///< the run's, the same on all ranks
  int64_t first_sample = 0;  ///< number, in the run's data order, of the batch's first sample
};

/// Inverted dropout (Srivastava et al. 2014) of x[samples, ...]: the identity in evaluation and for
/// p = 0. The mask is a function of (seed, site, sample number): any split of a batch over ranks
/// and micro-batches drops the same elements. `site` tells apart the dropouts of a model.
class Dropout final : public Module {
 public:
  Dropout(float p, uint32_t site);
  Tensor operator()(const Tensor& x, const SampleKey& key) const;

 private:
  float p_;
  uint32_t site_;
};

}  // namespace lockstep::layers
