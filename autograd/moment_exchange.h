#pragma once
#include "core/tensor.h"

namespace lockstep::autograd {

/// Whose values a batch normalisation is over, besides this thread's own batch: joins what was
/// found here with what others found. Both calls are collectives of all who normalise together,
/// also of those whose batch is empty.
class MomentExchange {
 public:
  virtual ~MomentExchange() = default;
  /// `moments` [3, C] of `count` values a channel become those of all values, the same bits for
  /// all; returns their count. Called in forward.
  virtual int64_t join(const Tensor& moments, int64_t count) = 0;
  /// `sums` [2, C] become the sums over all. Called in backward.
  virtual void add(const Tensor& sums) = 0;
};

}  // namespace lockstep::autograd
