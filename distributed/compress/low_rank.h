#pragma once
#include "core/tensor.h"

namespace lockstep::distributed {

/// Makes the rows of x (f32 [k, n]) orthonormal: Gram-Schmidt in double, every row twice, so that
/// they are orthogonal to f32's precision. A row that depends on those before it, up to 1e-6 of its
/// length, becomes zero: so do NaN and infinity. The bits depend on x alone.
void orthonormalise(const Tensor& x);

/// Where a power iteration starts next: the rows of `product` (f32 [k, n], finite) with length 1.
/// A row of zeros, which would stay so for ever, starts anew from random numbers that are the same
/// wherever `seed` and `key` are; `first` moves on from call to call, by at least k · n.
struct NextBasis {
  uint64_t seed = 0;
  uint32_t key = 0;
  int64_t first = 0;
};
void next_basis(const Tensor& basis, const Tensor& product, const NextBasis& random);

}  // namespace lockstep::distributed
