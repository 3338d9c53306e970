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
  void release() { tensor_ = {}; }

 private:
  Tensor tensor_;
  uint64_t version_ = 0;
};

class Node;
using NodePtr = std::shared_ptr<Node>;

/// Where the gradient of one input goes: output `output` of the node that made the input. A null
/// node: nobody needs it.
struct Edge {
  NodePtr node;
  int output = 0;
};

/// One recorded operation: what it saved and its backward. Operations derive from it (see
/// autograd/ops); leaves have a node of their own kind (leaf.h).
class Node {
 public:
  virtual ~Node();
  virtual std::string_view name() const = 0;
  /// Gradients of the inputs from those of the outputs. dy[i] is undefined where nothing arrived at
  /// output i; entries of inputs that nobody needs (see needs()) may stay undefined.
  virtual Tensors backward(const Tensors& dy) = 0;
  /// Whether somebody needs the gradient of input i.
  bool needs(int i) const { return edges_[i].node != nullptr; }

 private:
  friend class Graph;
  friend struct Recorder;
  std::array<Edge, Tensors::kMax> edges_;
  int inputs_ = 0, outputs_ = 1;
  uint64_t sequence_ = 0;  // order of recording: backward runs the latest first
};

/// The node that makes x, or the leaf that collects its gradient; null when x needs none.
Edge edge_of(const Tensor& x);

/// Nodes alive in this process; for tests of retention.
int64_t live_nodes();

}  // namespace lockstep::autograd
