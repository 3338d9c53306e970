#pragma once
#include <span>

#include "core/dtype.h"
#include "core/kernels/fold_options.h"

namespace lockstep::kernel {

/// out[i] = post · (pre · ins[0][i] + pre · ins[1][i] + …), left to right, for `numel` elements of
/// host memory, written to all of `outs` in one pass, on the calling thread: what a collective does
/// with a slice. These are the bits of successive additions on every instruction set: f32 in f32,
/// f16 and bf16 as `in` says, integers modulo 2^bits (the mean divides the exact sum). An output
/// may be the same array as an input, or have nothing in common with it.
void fold(std::span<void* const> outs, std::span<const void* const> ins, DType dtype, int64_t numel,
          const FoldOptions& options);

}  // namespace lockstep::kernel
