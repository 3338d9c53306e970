#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

struct CodecLoops {
  struct Encode {
    float scale;
    uint8_t beyond;         ///< code of what is beyond the largest
    const uint32_t* words;  ///< one an element, for stochastic rounding; null: nearest even
  };
  void (*encode_e4m3)(uint8_t* codes, const float* x, int64_t n, const Encode&);
  void (*encode_e5m2)(uint8_t* codes, const float* x, int64_t n, const Encode&);
  void (*decode_e4m3)(float* out, const uint8_t* codes, int64_t n, float factor);
  void (*decode_e5m2)(float* out, const uint8_t* codes, int64_t n, float factor);
};
LOCKSTEP_DECLARE_LOOPS(Codec);

}  // namespace lockstep::cpu
