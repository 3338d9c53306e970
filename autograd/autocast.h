#pragma once
#include <optional>

#include "core/tensor.h"

namespace lockstep::autograd {

/// While alive, operations that multiply (linear, matmul, attention, convolution) do so in
/// `compute` on this thread: operands are rounded to it, products are added in f32 and the result
/// is rounded to it. f32 widens narrow operands. The table in autograd/README.md says what every
/// operation computes in and gives. Nests; the innermost counts. Covers forward only: a backward
/// repeats what its forward did, whatever is alive by then.
class Autocast {
 public:
  /// UsageError unless `compute` is floating.
  explicit Autocast(DType compute);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  std::optional<DType> before_;
};

/// The innermost Autocast's dtype; none: operations compute in the dtype of their operands, f32
/// where these differ.
std::optional<DType> autocast_dtype();

/// x in `dtype`, without recording: x itself where that is its dtype. A leaf keeps the copy until
/// its value changes, so that a weight is cast once a step; do not write to it. UsageError unless
/// both are floating.
Tensor cast_of(const Tensor& x, DType dtype);

}  // namespace lockstep::autograd
