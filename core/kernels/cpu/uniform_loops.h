#pragma once
#include "core/kernels/cpu/loops.h"
#include "core/kernels/cpu/philox_key.h"

namespace lockstep::cpu {

struct UniformLoops {
  /// out[i] = bound · ((w + ½) / 2³¹ - 1) in double, rounded once: w is word (first + i) % 4 of
  /// block (first + i) / 4.
  void (*uniform)(float* out, int64_t n, double bound, PhiloxKey key, uint64_t first);
  /// 16 random bits an element: those of the blocks of a sequence from `block` on, in order, the
  /// lower half of a word first.
  void (*halves)(uint16_t* out, int64_t n, PhiloxKey key, uint64_t block);
};
LOCKSTEP_DECLARE_LOOPS(Uniform);

}  // namespace lockstep::cpu
