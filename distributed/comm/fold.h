#pragma once
#include "core/kernels/fold.h"
#include "distributed/comm/options.h"

namespace lockstep::distributed {

/// kernel::fold as a collective's spec says.
inline void fold(std::span<void* const> outs, std::span<const void* const> ins, DType dtype,
                 int64_t numel, const ReduceSpec& spec) {
  kernel::fold(outs, ins, dtype, numel,
               {.op = spec.op, .in = spec.reduce_in, .pre = spec.pre, .post = spec.post});
}

}  // namespace lockstep::distributed
