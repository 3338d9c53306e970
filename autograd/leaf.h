#pragma once
#include <functional>

#include "core/tensor.h"

namespace lockstep::autograd {

/// What the next gradient that lands at a leaf does to the gradient already there.
enum class Landing { overwrite, add };

/// The gradient side of a leaf (a parameter): where its gradient lands and who is told.
/// The contributions of one backward are summed in the graph; the sum lands once, when the last one
/// has arrived, and then `on_ready` is called on the thread that runs backward. A leaf that nothing
/// reached is left alone: no landing, no call.
struct Leaf {
  /// What the sum is rounded to before it lands; the leaf's own dtype until its owner says
  /// otherwise.
  DType dtype = DType::f32;
  Tensor grad;  ///< lands here; allocated in `dtype` on first use when undefined. May be wider:
                ///< adds are made in f32 and rounded to it once. Parameters: a view of FlatParams
  Landing landing =
      Landing::overwrite;  ///< set by whoever opens a window; becomes `add` after a landing
  std::function<void()> on_ready;
};

/// Makes x a leaf that wants a gradient, and returns its gradient side. Idempotent. A UsageError
/// when x was made by a recorded operation or is not of a floating dtype.
Leaf& require_grad(const Tensor& x);
/// The gradient side of a leaf; a UsageError for anything else.
Leaf& leaf_of(const Tensor& x);
/// Whether x is a leaf or was recorded: whether somebody needs its gradient.
bool requires_grad(const Tensor& x);
/// The gradient that landed at leaf x; undefined when none did.
Tensor grad(const Tensor& x);

}  // namespace lockstep::autograd
