#pragma once
#include <initializer_list>
#include <span>
#include <utility>

#include "autograd/leaf.h"
#include "autograd/no_grad.h"
#include "autograd/node.h"
#include "core/allocator.h"

namespace lockstep::autograd {

/// What record() does without templates.
struct Recorder {
  /// Whether recording is on and some input needs a gradient.
  static bool wanted(std::span<const Tensor> inputs);
  /// Links `node` behind the inputs and in front of the outputs. The outputs become views of what
  /// they were, and only the views know the node: an operation may save its own output without
  /// owning itself.
  static void link(NodePtr node, std::span<Tensor* const> outputs, std::span<const Tensor> inputs);

  template <class Op>
  static std::shared_ptr<Op> make() {
    auto node = make_pooled<Op>();
    node->forget_ = [](Node& n) { static_cast<Op&>(n) = Op(); };
    return node;
  }
};

/// Records operation Op with its outputs and inputs, unless recording is off (NoGrad) or no input
/// needs a gradient. `save` fills the node; it runs only when recording. Undefined inputs (an
/// absent bias) are allowed.
template <class Op, class Save>
void record(std::initializer_list<Tensor*> outputs, std::initializer_list<Tensor> inputs,
            Save&& save) {
  if (!Recorder::wanted({inputs.begin(), inputs.size()})) return;
  auto node = Recorder::make<Op>();
  save(*node);
  Recorder::link(std::move(node), {outputs.begin(), outputs.size()},
                 {inputs.begin(), inputs.size()});
}
template <class Op, class Save>
Tensor record(Tensor y, std::initializer_list<Tensor> inputs, Save&& save) {
  record<Op>({&y}, inputs, std::forward<Save>(save));
  return y;
}

}  // namespace lockstep::autograd
