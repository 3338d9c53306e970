#pragma once
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "distributed/comm/options.h"

namespace lockstep::distributed {

/// out[i] = post · (pre · in[0][i] + pre · in[1][i] + …), left to right, for `numel`
/// elements, written to all of `outs`. These are the bits of successive additions: f32 in f32, f16
/// and bf16 as spec.reduce_in says, integers modulo 2^bits (the mean divides the exact sum). An
/// output may be the same array as an input.
void fold(std::span<void* const> outs, std::span<const void* const> ins, DType dtype, int64_t numel,
          const ReduceSpec& spec);

}  // namespace lockstep::distributed
