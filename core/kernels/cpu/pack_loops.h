#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// Codes of less than a byte, one after the other from the lowest bit of the first byte on. A byte
/// that is begun is written.
struct PackLoops {
  /// Of `bits` bits, 1 to 7, each in a byte elsewhere.
  void (*pack)(uint8_t* packed, const uint8_t* codes, int64_t n, int bits);
  void (*unpack)(uint8_t* codes, const uint8_t* packed, int64_t n, int bits);
  /// One bit: 1 where the sign bit is set.
  void (*pack_signs)(uint8_t* packed, const float* x, int64_t n);
  /// out[i] (+)= ±magnitude
  void (*of_signs)(float* out, const uint8_t* packed, int64_t n, float magnitude);
  void (*add_of_signs)(float* out, const uint8_t* packed, int64_t n, float magnitude);
};
LOCKSTEP_DECLARE_LOOPS(Pack);

}  // namespace lockstep::cpu
