#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// Samples of N vectors; `out` begins with the width columns of the first vector's copy.
struct InteractionLoops {
  /// Floats of room that the forward pass needs for one sample.
  int64_t (*room)(int64_t vectors, int64_t width);
  void (*forward)(float* out, const float* x, float* room, int64_t samples, int64_t vectors,
                  int64_t width);
  void (*backward)(float* dx, const float* dout, const float* x, int64_t samples, int64_t vectors,
                   int64_t width);
};
LOCKSTEP_DECLARE_LOOPS(Interaction);

}  // namespace lockstep::cpu
