#include "autograd/node.h"

#include <algorithm>
#include <atomic>

#include "autograd/leaf_node.h"

namespace lockstep::autograd {
namespace {

std::atomic<int64_t> live{0};
thread_local const Node* running = nullptr;

// Note [Release without recursion]
// The last owner of a node releases it; the node owns the nodes of its inputs, and so on down a
// graph of any depth. Instead of recursing, a node that is being destroyed hangs those of its
// inputs that it alone owns on this list of the thread, and the outermost destructor empties the
// list.
thread_local NodePtr* released = nullptr;

}  // namespace

Tensors::Tensors(std::initializer_list<Tensor> list) {
  resize(static_cast<int>(list.size()));
  std::copy(list.begin(), list.end(), items_.begin());
}

void Tensors::resize(int n) {
  check(n >= 0 && n <= kMax, "[autograd.tensors] expected at most {} tensors, got {}", kMax, n);
  size_ = n;
}

Saved& Saved::operator=(const Tensor& x) {
  const bool recorded = x.defined() && x.autograd() != nullptr;
  tensor_ = recorded ? x.detach() : x;
  version_ = x.defined() ? x.version() : 0;
  return *this;
}

const Tensor& Saved::get() const {
  const std::string_view name = running ? running->name() : "saved";
  check(tensor_.defined(),
        "[autograd.{}] a tensor saved for backward was never set, or freed with its graph", name);
  check(tensor_.version() == version_,
        "[autograd.{}] a tensor ({}) saved for backward was written in place since; expected "
        "version {}, got {}",
        name, tensor_, version_, tensor_.version());
  return tensor_;
}

Node::Node() {
  for (int i = 0; i < kMaxOutputs; ++i) {
    slots_[i].node = this;
    slots_[i].output = i;
  }
  live.fetch_add(1, std::memory_order_relaxed);
}

Node::~Node() {
  live.fetch_sub(1, std::memory_order_relaxed);
  drop_edges();
}

void Node::drop_edges() noexcept {
  NodePtr list;
  const bool outermost = released == nullptr;
  if (outermost) released = &list;
  for (int i = 0; i < inputs_; ++i) {
    NodePtr node = std::move(edges_[i].node);
    if (node.use_count() == 1) {  // nobody else can come to own it
      node->next_released_ = std::move(*released);
      *released = std::move(node);
    }
  }
  if (!outermost) return;
  while (list) {
    NodePtr node = std::move(list);
    list = std::move(node->next_released_);
    node.reset();
  }
  released = nullptr;
}

Tensor Node::gradient_for(int i, const Shape& shape, const Tensor& like) const {
  if (edges_[i].node)
    if (LeafNode* leaf = edges_[i].node->as_leaf())
      if (Tensor place = leaf->direct(); place.defined()) return place;
  return Tensor::empty(shape, gradient_dtype(i), like.device());
}

DType Node::gradient_dtype(int i) const {
  const auto& [node, output] = edges_[i];
  if (!node) return DType::f32;
  const LeafNode* leaf = node->as_leaf();
  if (!leaf) return node->dtypes_[output];
  return leaf->alone() ? leaf->leaf.dtype : DType::f32;
}

Edge edge_of(const Tensor& x) {
  if (!x.defined() || x.autograd() == nullptr) return {};
  const auto& slot = static_cast<const Slot&>(*x.autograd());
  return {NodePtr(x.autograd(), slot.node), slot.output};
}

int64_t live_nodes() { return live.load(std::memory_order_relaxed); }

RunningNode::RunningNode(const Node& node) : before_(running) { running = &node; }
RunningNode::~RunningNode() { running = before_; }

}  // namespace lockstep::autograd
