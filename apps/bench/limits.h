#pragma once
#include <cstdint>

namespace lockstep::apps {

/// A loop that does nothing but multiply and add in registers: what one core can do at most.
struct PeakLoop {
  const char* name = "";                   ///< "fp32 fma, avx512"; empty: this machine has none
  double flops_per_round = 0;              ///< a product and a sum count 1 each
  float (*run)(int64_t rounds) = nullptr;  ///< returns a number that depends on all of them
};
/// In the instruction set in use (LOCKSTEP_ISA).
PeakLoop fp32_peak_loop();
/// Pairs of bf16 into f32 sums, AVX512_BF16; none without that. AMX has no loop of its own here:
/// the best product of ours stands for it.
PeakLoop bf16_peak_loop();

/// a[i] = b[i] + s * c[i], as the compiler stores it and, where the processor can, past the caches.
void triad(float* a, const float* b, const float* c, float s, int64_t n);
void triad_streaming(float* a, const float* b, const float* c, float s, int64_t n);

}  // namespace lockstep::apps
