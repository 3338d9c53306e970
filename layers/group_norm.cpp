#include "layers/group_norm.h"

namespace lockstep::layers {

GroupNorm::GroupNorm(Initialiser& init, int64_t groups, int64_t channels,
                     const GroupNormOptions& options)
    : groups_(groups), channels_(channels), eps_(options.eps) {
  check(groups >= 1 && channels >= groups && channels % groups == 0,
        "[layers.group_norm] expected a number of groups that divides {} channels, got {}",
        channels, groups);
  check(options.eps > 0, "[layers.group_norm] eps; expected more than 0, got {}", options.eps);
  if (!options.affine) return;
  weight_ = init.constant({channels}, 1);
  bias_ = init.constant({channels}, 0);
  add_parameter("weight", weight_, Decay::no);
  add_parameter("bias", bias_, Decay::no);
}

Tensor GroupNorm::operator()(const Tensor& x) const {
  check(x.rank() >= 2 && x.size(1) == channels_,
        "[layers.group_norm] expected [N, {}, ...], got {}", channels_, x.shape());
  return ops::group_norm(x, weight_, bias_, groups_, eps_);
}

}  // namespace lockstep::layers
