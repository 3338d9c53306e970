#pragma once
#include "core/kernels/fold.h"
#include "distributed/comm/options.h"

namespace lockstep::distributed {

/// kernel::fold as a collective's spec says.
inline void fold(std::span<void* const> outs, std::span<const void* const> ins, DType dtype,
                 int64_t numel, const ReduceSpec& spec) {
  static_assert(static_cast<int>(ReduceOp::sum) == static_cast<int>(kernel::FoldOp::sum) &&
                static_cast<int>(ReduceOp::mean) == static_cast<int>(kernel::FoldOp::mean) &&
                static_cast<int>(ReduceOp::max) == static_cast<int>(kernel::FoldOp::max) &&
                static_cast<int>(ReduceOp::min) == static_cast<int>(kernel::FoldOp::min));
  kernel::fold(outs, ins, dtype, numel,
               {.op = static_cast<kernel::FoldOp>(spec.op),
                .in = spec.reduce_in == ReduceIn::wire ? kernel::FoldIn::wire : kernel::FoldIn::f32,
                .pre = spec.pre,
                .post = spec.post});
}

}  // namespace lockstep::distributed
