#pragma once
#include <array>
#include <memory>
#include <string_view>

#include "core/tensor.h"

namespace lockstep::autograd {

/// A few tensors in place: the gradients that enter and leave a node. Never allocates.
class Tensors {
 public:
  static constexpr int kMax = 6;
  Tensors() = default;
  Tensors(std::initializer_list<Tensor> list);
  Tensor& operator[](int i) { return items_[i]; }
  const Tensor& operator[](int i) const { return items_[i]; }
  int size() const { return size_; }
  void resize(int n);

 private:
  std::array<Tensor, kMax> items_;
  int size_ = 0;
};

/// A tensor kept for the backward, with the version it had. Reading it after an in-place write is a
/// UsageError, never a silently wrong gradient; so is reading it after the graph was freed.
class Saved {
 public:
  Saved& operator=(const Tensor& x);
  operator const Tensor&() const { return get(); }
  const Tensor& get() const;
  bool defined() const { return tensor_.defined(); }

 private:
  Tensor tensor_;  // without the autograd slot: a node owns other nodes by its edges only
  uint64_t version_ = 0;
};

class Graph;
class Node;
struct LeafNode;
using NodePtr = std::shared_ptr<Node>;

/// Where the gradient of one input goes: output `output` of the node that made the input. A null
/// node: nobody needs it.
struct Edge {
  NodePtr node;
  int output = 0;
};

/// What hangs on a tensor that needs a gradient: it is output `output` of `node`. Lives inside the
/// node and shares its ownership.
struct Slot final : AutogradSlot {
  Node* node = nullptr;
  int output = 0;
};

/// One recorded operation: what it saved and its backward. Operations derive from it (see
/// autograd/ops); leaves have a node of their own kind (leaf_node.h).
class Node {
 public:
  static constexpr int kMaxOutputs = 3;

  Node();
  virtual ~Node();
  Node(const Node&) = delete;

  virtual std::string_view name() const = 0;
  /// Gradients of the inputs from those of the outputs. dy[i] is undefined where nothing arrived at
  /// output i (at least one is defined); entries of inputs that nobody needs (see needs()) may stay
  /// undefined. Must not write to dy.
  virtual Tensors backward(const Tensors& dy) = 0;
  /// Whether somebody needs the gradient of input i.
  bool needs(int i) const { return edges_[i].node != nullptr; }
  /// The dtype of input i's gradient: that of the tensor it belongs to; of a leaf, what it is
  /// rounded to there (Leaf::dtype), or f32 where it is one of several, whose sum is rounded. f32
  /// where nobody needs it.
  DType gradient_dtype(int i) const;

 protected:
  /// Assigning an operation replaces what it saved, not its place in the graph.
  Node& operator=(const Node&) { return *this; }
  /// Memory for the gradient of input i (and of no other), uninitialised: the leaf's own gradient
  /// where this contribution is all that lands there and it overwrites, else a new tensor of
  /// `shape` in gradient_dtype(i) on the device of `like`.
  Tensor gradient_for(int i, const Shape& shape, const Tensor& like) const;
  Tensor gradient_for(int i, const Tensor& like) const {
    return gradient_for(i, like.shape(), like);
  }

 private:
  friend class Graph;
  friend struct Recorder;
  friend struct LeafNode;
  struct Arrived {  // the sum of what has arrived at an output
    Tensor dy;
    bool owned = false;  // a sum made here, so that more can be added in place
  };
  virtual LeafNode* as_leaf() { return nullptr; }
  void drop_edges() noexcept;

  std::array<Edge, Tensors::kMax> edges_;
  std::array<Slot, kMaxOutputs> slots_;
  std::array<DType, kMaxOutputs> dtypes_{};  // of the outputs, and so of their gradients
  std::array<Arrived, kMaxOutputs> arrived_;
  void (*forget_)(Node&) = nullptr;  // releases what the operation saved
  NodePtr next_released_;            // Note [Release without recursion], node.cpp
  uint64_t sequence_ = 0;            // order of recording: backward runs the latest first
  uint8_t inputs_ = 0, outputs_ = 1;
  bool freed_ = false;              // an earlier backward ran it
  const Graph* visitor_ = nullptr;  // the backward that is to run it
};

/// The node that makes x, or the leaf that collects its gradient; null when x needs none.
Edge edge_of(const Tensor& x);

/// Nodes alive in this process, leaves included; for tests of retention.
int64_t live_nodes();

/// Names the node whose backward runs on this thread in the errors of Saved, while it lives.
class RunningNode {
 public:
  explicit RunningNode(const Node& node);
  ~RunningNode();
  RunningNode(const RunningNode&) = delete;
  RunningNode& operator=(const RunningNode&) = delete;

 private:
  const Node* before_;
};

}  // namespace lockstep::autograd
