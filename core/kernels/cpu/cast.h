#pragma once
#include <cstdint>

#include "core/dtype.h"

/// Runs of elements between f32 and another floating dtype, on the calling thread, with the
/// rounding of kernel::cast. For host files that compute in f32; not for *_loops.cpp.
namespace lockstep::cpu {

/// out[i] = x[i], exactly.
void widen(float* out, const void* x, DType dtype, int64_t n);
/// out[i] = x[i] rounded to nearest even.
void narrow(void* out, DType dtype, const float* x, int64_t n);

}  // namespace lockstep::cpu
