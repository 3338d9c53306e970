#include "layers/pool.h"

#include "autograd/ops.h"

namespace lockstep::layers {

Tensor MaxPool::operator()(const Tensor& x) const { return ops::max_pool(x, options_); }

Tensor AveragePool::operator()(const Tensor& x) const {
  return ops::average_pool(x, options_, divisor_);
}

Tensor GlobalAveragePool::operator()(const Tensor& x) const { return ops::global_average_pool(x); }

Tensor Flatten::operator()(const Tensor& x) const { return ops::flatten(x); }

}  // namespace lockstep::layers
