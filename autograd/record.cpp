#include "autograd/record.h"

#include <algorithm>

namespace lockstep::autograd {
namespace {

thread_local bool recording_on = true;
thread_local uint64_t next_sequence = 1;

}  // namespace

bool recording() { return recording_on; }
NoGrad::NoGrad() : before_(std::exchange(recording_on, false)) {}
NoGrad::~NoGrad() { recording_on = before_; }

bool Recorder::wanted(std::span<const Tensor> inputs) {
  return recording_on && std::any_of(inputs.begin(), inputs.end(), requires_grad);
}

void Recorder::link(NodePtr node, std::span<Tensor* const> outputs,
                    std::span<const Tensor> inputs) {
  check(outputs.size() <= Node::kMaxOutputs && inputs.size() <= Tensors::kMax,
        "[autograd.record] {}; expected at most {} outputs and {} inputs, got {} and {}",
        node->name(), Node::kMaxOutputs, Tensors::kMax, outputs.size(), inputs.size());
  node->outputs_ = static_cast<uint8_t>(outputs.size());
  node->inputs_ = static_cast<uint8_t>(inputs.size());
  // Later than every input, also where an input was recorded by another thread.
  uint64_t sequence = next_sequence;
  for (size_t i = 0; i < inputs.size(); ++i) {
    node->edges_[i] = edge_of(inputs[i]);
    if (const auto& from = node->edges_[i].node) sequence = std::max(sequence, from->sequence_ + 1);
  }
  node->sequence_ = sequence;
  next_sequence = sequence + 1;
  for (size_t i = 0; i < outputs.size(); ++i) {
    node->dtypes_[i] = outputs[i]->dtype();
    Tensor view = outputs[i]->detach();
    view.set_autograd({node, &node->slots_[i]});
    *outputs[i] = std::move(view);
  }
}

}  // namespace lockstep::autograd
