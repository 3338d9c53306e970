#pragma once
#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/record.h"

/// What the operations share.
namespace lockstep::ops {

using autograd::cast_of;
using autograd::Node;
using autograd::record;
using autograd::requires_grad;
using autograd::Saved;
using autograd::Tensors;

inline Tensor like(const Tensor& x) { return empty_like(x); }
/// x as a matrix: every dimension but the last makes rows.
inline Tensor as_rows(const Tensor& x) {
  return x.rank() == 2 ? x : x.reshape({x.shape().rows(), x.shape().last()});
}
/// An f32 tensor on x's device.
inline Tensor floats(const Tensor& x, const Shape& shape) {
  return Tensor::empty(shape, DType::f32, x.device());
}
inline Tensor like(const Tensor& x, DType dtype) {
  return Tensor::empty(x.shape(), dtype, x.device());
}
/// C of the table in the README: the innermost Autocast's dtype, else what a and b promote to.
inline DType compute_dtype(const Tensor& a, const Tensor& b) {
  return autograd::autocast_dtype().value_or(promote(a.dtype(), b.dtype()));
}
/// g as the gradient of the node's input i: g itself, or rounded to the dtype of that. Undefined
/// where nobody needs it.
inline Tensor as_gradient(const Node& node, int i, const Tensor& g) {
  return node.needs(i) ? cast_of(g, node.gradient_dtype(i)) : Tensor();
}
/// The shape of x with another last extent.
Shape with_last(const Shape& shape, int64_t last);
}  // namespace lockstep::ops
