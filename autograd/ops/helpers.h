#pragma once
#include "autograd/ops.h"
#include "autograd/record.h"

/// What the operations share.
namespace lockstep::ops {

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
/// The shape of x with another last extent.
Shape with_last(const Shape& shape, int64_t last);
/// A new tensor of x's kind with `shape`, filled with the scalar dy.
Tensor spread(const Tensor& dy, const Shape& shape);

}  // namespace lockstep::ops
