#pragma once
#include "core/tensor.h"

namespace lockstep::autograd {

/// Runs backward from `y`, seeded with `dy` (same shape; undefined: ones, for a scalar only), on
/// the calling thread, without recursion. A leaf is ready when its last contribution lands. Frees
/// what the graph saved: a second backward through it is a UsageError. Deterministic: nodes run
/// latest recorded first.
void backward(const Tensor& y, const Tensor& dy = {});

}  // namespace lockstep::autograd
