#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

struct CastLoops {
  void (*half_to_float)(float* out, const uint16_t* x, int64_t n);
  void (*float_to_half)(uint16_t* out, const float* x, int64_t n);
  void (*bfloat16_to_float)(float* out, const uint16_t* x, int64_t n);
  void (*float_to_bfloat16)(uint16_t* out, const float* x, int64_t n);
};
LOCKSTEP_DECLARE_LOOPS(Cast);

}  // namespace lockstep::cpu
