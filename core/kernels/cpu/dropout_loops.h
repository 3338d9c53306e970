#pragma once
#include "core/kernels/cpu/loops.h"
#include "core/kernels/cpu/philox_key.h"

namespace lockstep::cpu {

struct DropoutLoops {
  /// out = keep · x where the 24-bit uniform of the element is at least `threshold`, else 0.
  /// Element i uses word i % 4 of block first_block + i / 4.
  void (*dropout)(float* out, const float* x, int64_t n, uint32_t threshold, float keep,
                  PhiloxKey key, uint64_t first_block);
};
LOCKSTEP_DECLARE_LOOPS(Dropout);

}  // namespace lockstep::cpu
