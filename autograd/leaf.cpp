#include "autograd/leaf.h"

#include "autograd/leaf_node.h"
#include "core/kernels/elementwise.h"

namespace lockstep::autograd {
namespace {

LeafNode* leaf_node(const Tensor& x) {
  if (!requires_grad(x)) return nullptr;
  return dynamic_cast<LeafNode*>(static_cast<const Slot&>(*x.autograd()).node);
}

}  // namespace

Leaf& require_grad(const Tensor& x) {
  check(is_floating(x.dtype()), "[autograd.require_grad] expected a floating dtype, got {}",
        describe(x));
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
        "[autograd.leaf_of] expected a tensor that require_grad() was called on, got {}",
        describe(x));
  return node->leaf;
}

bool requires_grad(const Tensor& x) { return x.defined() && x.autograd() != nullptr; }

Tensor grad(const Tensor& x) { return leaf_of(x).grad; }

Tensor LeafNode::direct() const {
  const bool all = pending == 1 && !arrived_[0].dy.defined() && leaf.landing == Landing::overwrite;
  return all && leaf.grad.defined() && leaf.grad.dtype() == dtype ? leaf.grad : Tensor();
}

void LeafNode::land(const Tensor& sum) {
  check(sum.shape() == shape, "[autograd.backward] gradient of a leaf; expected shape {}, got {}",
        to_string(shape), to_string(sum.shape()));
  const bool first = !leaf.grad.defined();
  if (first) leaf.grad = Tensor::empty(shape, dtype, device);
  if (first || leaf.landing == Landing::overwrite) {
    if (leaf.grad.dtype() != sum.dtype())
      kernel::cast(leaf.grad, sum);
    else if (!leaf.grad.is(sum))  // else the node wrote it there itself
      kernel::copy(leaf.grad, sum);
  } else {
    kernel::binary(leaf.grad, leaf.grad, sum, kernel::Binary::add);
  }
  leaf.landing = Landing::add;
  if (leaf.on_ready) leaf.on_ready();
}

}  // namespace lockstep::autograd
