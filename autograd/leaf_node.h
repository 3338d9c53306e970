#pragma once
#include "autograd/leaf.h"
#include "autograd/node.h"

namespace lockstep::autograd {

/// The node behind a leaf: nothing to run, a place where gradients land.
struct LeafNode final : Node {
  explicit LeafNode(const Tensor& x) : shape(x.shape()), dtype(x.dtype()), device(x.device()) {}

  std::string_view name() const override { return "leaf"; }
  Tensors backward(const Tensors&) override { return {}; }
  LeafNode* as_leaf() override { return this; }
  AutogradSlot* slot() { return &slots_[0]; }

  /// The gradient of this backward is complete: lands in leaf.grad, then tells the leaf's owner.
  void land(const Tensor& sum);
  /// leaf.grad where `pending` says that one contribution is still to come, none has arrived and it
  /// would overwrite; else undefined.
  Tensor direct() const;

  Leaf leaf;
  Shape shape;
  DType dtype;
  Device device;
  int64_t pending = 0;  ///< contributions that the running backward still has to deliver
};

}  // namespace lockstep::autograd
