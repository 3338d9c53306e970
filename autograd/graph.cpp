#include "autograd/graph.h"

#include <algorithm>

#include "autograd/leaf_node.h"
#include "core/kernels/elementwise.h"
#include "core/profile.h"

namespace lockstep::autograd {
namespace {

struct Entry {
  uint64_t sequence;
  NodePtr node;
};

// Kept by each thread, so that a step that has run once allocates nothing.
struct Scratch {
  std::vector<Entry> order;  // operations
  std::vector<NodePtr> leaves;
  std::vector<Node*> unseen;  // found, but its inputs not yet looked at
};
thread_local Scratch spare;
constexpr size_t kKeep = 1 << 16;  // entries; a larger graph gives its scratch back

}  // namespace

/// One backward. Each operation's inputs were recorded before it, so that running the latest
/// recorded first sees every contribution arrive before it is passed on.
class Graph {
 public:
  Graph() { std::swap(work_, spare); }
  ~Graph();  // whatever happened, no node keeps anything of this backward
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void run(const Edge& root, const Tensor& seed);

 private:
  void find(const NodePtr& node);
  void run_node(Node& node);
  static void deliver(const Edge& edge, Tensor dx);
  static void leave(Node& node);

  Scratch work_;
};

void Graph::run(const Edge& root, const Tensor& seed) {
  find(root.node);
  if (LeafNode* leaf = root.node->as_leaf()) ++leaf->pending;  // backward from a leaf itself
  while (!work_.unseen.empty()) {
    Node* node = work_.unseen.back();
    work_.unseen.pop_back();
    for (int i = 0; i < node->inputs_; ++i) {
      const NodePtr& from = node->edges_[i].node;
      if (!from) continue;
      find(from);
      if (LeafNode* leaf = from->as_leaf()) ++leaf->pending;
    }
  }
  std::sort(work_.order.begin(), work_.order.end(),
            [](const Entry& a, const Entry& b) { return a.sequence > b.sequence; });
  deliver(root, seed);
  for (Entry& entry : work_.order) {
    run_node(*entry.node);
    entry.node.reset();
  }
}

void Graph::find(const NodePtr& node) {
  if (node->visitor_ == this || (node->visitor_ && node->as_leaf())) return;
  check(node->visitor_ == nullptr,
        "[autograd.backward] the graph at {} is in use by a backward that is still running",
        node->name());
  check(!node->freed_,
        "[autograd.backward] the graph at {} was freed by an earlier backward; run the forward "
        "again, or add the losses and call backward once",
        node->name());
  if (node->as_leaf()) {
    work_.leaves.push_back(node);
  } else {
    work_.order.push_back({node->sequence_, node});
    work_.unseen.push_back(node.get());
  }
  node->visitor_ = this;
}

void Graph::run_node(Node& node) {
  Tensors dy, dx;
  dy.resize(node.outputs_);
  bool any = false;
  for (int i = 0; i < node.outputs_; ++i) {
    dy[i] = std::move(node.arrived_[i].dy);
    any = any || dy[i].defined();
  }
  if (any) {
    const RunningNode named(node);
    const ProfileSpan span(Profile::Kind::backward, node.name());
    dx = node.backward(dy);
  }
  dy = {};
  // Freed before its gradients travel on: what it saved is not needed any more.
  leave(node);
  node.freed_ = true;
  node.forget_(node);
  for (int i = 0; i < node.inputs_; ++i)
    if (node.edges_[i].node) deliver(node.edges_[i], std::move(dx[i]));
  node.drop_edges();
}

void Graph::deliver(const Edge& edge, Tensor dx) {
  Node& to = *edge.node;
  Node::Arrived& sum = to.arrived_[edge.output];
  LeafNode* leaf = to.as_leaf();
  if (!leaf && dx.defined() && dx.dtype() != to.dtypes_[edge.output])
    throw UsageError(
        fmt::format("[autograd.backward] gradient of a result of {}; expected {}, got {}",
                    to.name(), name_of(to.dtypes_[edge.output]), describe(dx)));
  if (dx.defined() && !sum.dy.defined()) {
    sum.dy = std::move(dx);
  } else if (dx.defined()) {
    check(dx.shape() == sum.dy.shape(),
          "[autograd.backward] gradients of one result of {}; expected shape {}, got {}", to.name(),
          sum.dy.shape(), dx.shape());
    // What arrived first may also have gone elsewhere (add passes dy on twice): never written to.
    // What lands at a leaf is rounded once, with the last contribution.
    const DType dtype = !leaf ? sum.dy.dtype() : leaf->pending == 1 ? leaf->leaf.dtype : DType::f32;
    const Tensor out = sum.owned && sum.dy.dtype() == dtype
                           ? sum.dy
                           : Tensor::empty(dx.shape(), dtype, dx.device());
    kernel::binary(out, sum.dy, dx, kernel::Binary::add);
    sum = {out, true};
  }
  if (leaf && --leaf->pending == 0 && sum.dy.defined()) {
    const Tensor complete = std::move(sum.dy);
    leave(to);
    leaf->land(complete);
  }
}

void Graph::leave(Node& node) {
  node.visitor_ = nullptr;
  for (auto& sum : node.arrived_) sum = {};
}

Graph::~Graph() {
  for (Entry& entry : work_.order)
    if (entry.node && entry.node->visitor_ == this) leave(*entry.node);
  for (NodePtr& node : work_.leaves) {
    leave(*node);
    node->as_leaf()->pending = 0;
  }
  const bool keep =
      work_.order.capacity() <= kKeep && spare.order.capacity() <= work_.order.capacity();
  work_.order.clear();
  work_.leaves.clear();
  work_.unseen.clear();
  if (keep) std::swap(work_, spare);
}

void backward(const Tensor& y, const Tensor& dy) {
  check(requires_grad(y),
        "[autograd.backward] expected a tensor computed from one that wants a gradient, got {} "
        "without a graph (recorded under NoGrad, detached, or no parameter involved)",
        y);
  Tensor seed = dy;
  if (!seed.defined()) {
    check(y.numel() == 1,
          "[autograd.backward] no gradient given; expected a tensor of one element, got {}", y);
    seed = full(y.shape(), 1, y.dtype(), y.device());
  }
  check(seed.shape() == y.shape() && seed.dtype() == y.dtype(),
        "[autograd.backward] gradient given; expected {}, got {}", y, seed);
  Graph().run(edge_of(y), seed);
}

}  // namespace lockstep::autograd
