#include "autograd/leaf.h"

#include "autograd/leaf_node.h"
#include "core/kernels/elementwise.h"

namespace lockstep::autograd {

LeafNode* leaf_node(const Tensor& x) {
  if (!requires_grad(x)) return nullptr;
  return dynamic_cast<LeafNode*>(static_cast<const Slot&>(*x.autograd()).node);
}

Leaf& require_grad(const Tensor& x) {
  check(is_floating(x.dtype()), "[autograd.require_grad] expected a floating dtype, got {}", x);
  if (!requires_grad(x)) {
    auto node = make_pooled<LeafNode>(x);
    x.set_autograd({node, node->slot()});
    return node->leaf;
  }
  LeafNode* node = leaf_node(x);
  check(node != nullptr,
        "[autograd.require_grad] expected a leaf, got the result of {}; detach() it first",
        static_cast<const Slot&>(*x.autograd()).node->name());
  return node->leaf;
}

Leaf& leaf_of(const Tensor& x) {
  LeafNode* node = leaf_node(x);
  check(node != nullptr,
        "[autograd.leaf_of] expected a tensor that require_grad() was called on, got {}", x);
  return node->leaf;
}

bool requires_grad(const Tensor& x) { return x.defined() && x.autograd() != nullptr; }

Tensor grad(const Tensor& x) { return leaf_of(x).grad; }

Tensor LeafNode::direct() const {
  const bool here =
      leaf.landing == Landing::overwrite && leaf.grad.defined() && leaf.grad.dtype() == leaf.dtype;
  return alone() && here ? leaf.grad : Tensor();
}

void LeafNode::land(const Tensor& sum) {
  check(sum.shape() == shape, "[autograd.backward] gradient of a leaf; expected shape {}, got {}",
        shape, sum.shape());
  const bool first = !leaf.grad.defined();
  if (first) leaf.grad = Tensor::empty(shape, leaf.dtype, device);
  const bool overwrites = first || leaf.landing == Landing::overwrite;
  Tensor rounded = sum;
  if (sum.dtype() != leaf.dtype && !(overwrites && leaf.grad.dtype() == leaf.dtype)) {
    rounded = Tensor::empty(shape, leaf.dtype, device);
    kernel::cast(rounded, sum);
  }
  if (!overwrites)
    kernel::binary(leaf.grad, leaf.grad, rounded, kernel::Binary::add);
  else if (!leaf.grad.is(rounded))  // else the node wrote it there itself
    kernel::cast(leaf.grad, rounded);
  leaf.landing = Landing::add;
  if (leaf.on_ready) leaf.on_ready();
}

// Note [Casts of weights]
// A weight is multiplied by in every micro-batch of a window and changes once a step, so its cast
// is kept with the leaf. The copy is written over in place, for a step that allocates nothing; an
// operation that saved it then finds another version of it, as it would of the weight itself.
const Tensor& LeafNode::cast(const Tensor& x, DType dtype) {
  const bool fits = copy_.defined() && copy_.dtype() == dtype;
  if (fits && version_ == x.version()) return copy_;
  if (!fits) copy_ = Tensor::empty(shape, dtype, device);
  kernel::cast(copy_, x);
  version_ = x.version();
  return copy_;
}

}  // namespace lockstep::autograd
