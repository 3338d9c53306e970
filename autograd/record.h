#pragma once
#include <span>

#include "autograd/no_grad.h"
#include "autograd/node.h"

namespace lockstep::autograd {

/// What record() does without templates: links `node` behind the inputs and in front of the outputs.
struct Recorder {
  static bool wanted(std::span<const Tensor> inputs);
  static void link(NodePtr node, std::span<const Tensor> outputs, std::span<const Tensor> inputs);
};

/// Records operation Op with its outputs and inputs, unless recording is off (NoGrad) or no input
/// needs a gradient. `save` fills the node; it runs only when recording. Undefined inputs (an absent
/// bias) are allowed.
template <class Op, class Save>
void record(std::initializer_list<Tensor> outputs, std::initializer_list<Tensor> inputs, Save&& save) {
  if (!Recorder::wanted({inputs.begin(), inputs.size()})) return;
  auto node = make_pooled<Op>();
  save(*node);
  Recorder::link(std::move(node), {outputs.begin(), outputs.size()}, {inputs.begin(), inputs.size()});
}
template <class Op, class Save>
Tensor record(const Tensor& y, std::initializer_list<Tensor> inputs, Save&& save) {
  record<Op>({y}, inputs, std::forward<Save>(save));
  return y;
}

}  // namespace lockstep::autograd
