#pragma once
#include <algorithm>
#include <span>

#include "core/tensor.h"

namespace lockstep::distributed {

/// to[i] = from[rows[i] - first], rows of `width` floats.
inline void gather_rows(float* to, const float* from, std::span<const int64_t> rows, int64_t first,
                        int64_t width) {
  for (const int64_t row : rows) to = std::copy_n(from + (row - first) * width, width, to);
}
/// to[rows[i]] = from[i]
inline void scatter_rows(float* to, const float* from, std::span<const int64_t> rows,
                         int64_t width) {
  for (const int64_t row : rows) {
    std::copy_n(from, width, to + row * width);
    from += width;
  }
}

inline std::span<const int64_t> rows_in(const Tensor& rows) {
  return {rows.data<int64_t>(), static_cast<size_t>(rows.numel())};
}
inline Tensor tensor_of(std::span<const int64_t> rows) {
  const Tensor x = Tensor::empty({static_cast<int64_t>(rows.size())}, DType::i64);
  std::ranges::copy(rows, x.mutable_data<int64_t>());
  return x;
}

}  // namespace lockstep::distributed
