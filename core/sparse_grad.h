#pragma once
#include "core/tensor.h"

namespace lockstep {

/// The gradient of embedding tables, of the rows that were looked up only. Row r of the flat tensor
/// that holds all tables; each row once, whatever the number of times it was looked up.
struct SparseGrad {
  Tensor rows;    ///< i64 [R], ascending, unique
  Tensor values;  ///< f32 [R, D]
  int64_t count() const { return rows.defined() ? rows.numel() : 0; }
};

}  // namespace lockstep
