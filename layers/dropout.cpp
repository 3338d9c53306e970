#include "layers/dropout.h"

#include "autograd/ops.h"

namespace lockstep::layers {

Dropout::Dropout(float p, uint32_t site) : p_(p), site_(site) {
  check(p >= 0 && p < 1, "[layers.dropout] probability; expected 0 <= p < 1, got {}", p);
}

Tensor Dropout::operator()(const Tensor& x, const SampleKey& key) const {
  if (mode() == Mode::evaluate) return x;
  return ops::dropout(x, p_, {.seed = key.seed, .site = site_, .first_sample = key.first_sample});
}

}  // namespace lockstep::layers
