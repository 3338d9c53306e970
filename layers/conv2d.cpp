#include "layers/conv2d.h"

#include "autograd/ops.h"

namespace lockstep::layers {

Conv2d::Conv2d(Initialiser& init, int64_t in, int64_t out, const Conv2dOptions& options)
    : options_(options.convolution) {
  const auto& [rows, columns] = options.window;
  const int64_t groups = options_.groups;
  check(in >= 1 && out >= 1 && rows >= 1 && columns >= 1,
        "[layers.conv2d] expected at least 1 channel and a window of at least 1 x 1, got {} -> {} "
        "by {} x {}",
        in, out, rows, columns);
  check(groups >= 1 && in % groups == 0 && out % groups == 0,
        "[layers.conv2d] groups; expected a divisor of {} input and {} output channels, got {}", in,
        out, groups);
  const Shape shape{out, in / groups, rows, columns};
  weight_ = init.weight(shape, filter_fans(shape, groups, FilterLayout::oihw), options.init);
  add_parameter("weight", weight_, Decay::yes);
  if (!options.bias) return;
  bias_ = init.constant({out}, 0);
  add_parameter("bias", bias_, Decay::no);
}

Tensor Conv2d::operator()(const Tensor& x) const {
  return ops::conv2d(x, weight_, bias_, options_);
}

}  // namespace lockstep::layers
