#include "autograd/autocast.h"

#include <utility>

#include "autograd/leaf_node.h"
#include "core/kernels/elementwise.h"

namespace lockstep::autograd {
namespace {

thread_local std::optional<DType> innermost;

}  // namespace

Autocast::Autocast(DType compute) : before_(innermost) {
  check(is_floating(compute), "[autograd.autocast] expected f32, f16 or bf16, got {}",
        name_of(compute));
  innermost = compute;
}

Autocast::~Autocast() { innermost = before_; }

std::optional<DType> autocast_dtype() { return innermost; }

Tensor cast_of(const Tensor& x, DType dtype) {
  check(is_floating(x.dtype()) && is_floating(dtype),
        "[autograd.autocast] expected floating dtypes, got {} to become {}", x, name_of(dtype));
  if (x.dtype() == dtype) return x;
  if (LeafNode* leaf = leaf_node(x)) return leaf->cast(x, dtype);
  const Tensor copy = Tensor::empty(x.shape(), dtype, x.device());
  kernel::cast(copy, x);
  return copy;
}

}  // namespace lockstep::autograd
