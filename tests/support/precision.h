#pragma once
#include <vector>

#include "core/kernels/elementwise.h"
#include "core/tensor.h"

/// Tensors of other floating dtypes, for tests.
namespace lockstep::test {

inline constexpr DType kFloating[] = {DType::f32, DType::f16, DType::bf16};
inline constexpr DType kNarrow[] = {DType::f16, DType::bf16};

/// A copy of x in `dtype`, rounded once.
inline Tensor in_dtype(const Tensor& x, DType dtype) {
  const Tensor y = Tensor::empty(x.shape(), dtype);
  kernel::cast(y, x);
  return y;
}

/// Elements of any floating dtype, widened.
inline std::vector<float> floats(const Tensor& x) { return values(in_dtype(x, DType::f32)); }

/// `numbers` into x, rounded.
inline void set(const Tensor& x, const std::vector<float>& numbers) {
  kernel::cast(x, from_values(numbers, x.shape()));
}

}  // namespace lockstep::test
