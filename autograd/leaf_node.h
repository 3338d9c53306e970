#pragma once
#include "autograd/leaf.h"
#include "autograd/node.h"

namespace lockstep::autograd {

/// The node behind a leaf: nothing to run, a place where gradients land.
struct LeafNode final : Node {
  explicit LeafNode(const Tensor& x) : shape(x.shape()), device(x.device()) {
    leaf.dtype = x.dtype();
  }

  std::string_view name() const override { return "leaf"; }
  Tensors backward(const Tensors&) override { return {}; }
  LeafNode* as_leaf() override { return this; }
  AutogradSlot* slot() { return &slots_[0]; }

  /// The gradient of this backward is complete: lands in leaf.grad, then tells the leaf's owner.
  void land(const Tensor& sum);
  /// Whether the contribution that is made now is all there will be: one is `pending` and none has
  /// arrived.
  bool alone() const { return pending == 1 && !arrived_[0].dy.defined(); }
  /// leaf.grad where it has leaf.dtype and a contribution alone would overwrite it; else undefined.
  Tensor direct() const;
  /// The leaf's value `x` in `dtype`, cast again when it was written since.
  const Tensor& cast(const Tensor& x, DType dtype);

  Leaf leaf;
  Shape shape;
  Device device;
  int64_t pending = 0;  ///< contributions that the running backward still has to deliver

 private:
  Tensor copy_;           // the value in another dtype, for autocast
  uint64_t version_ = 0;  // of the value that it was made from
};

/// The node behind leaf x; null for anything else.
LeafNode* leaf_node(const Tensor& x);

}  // namespace lockstep::autograd
