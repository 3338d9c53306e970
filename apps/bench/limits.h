#pragma once
#include <cstdint>
#include <vector>

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

/// A loop that is as fast as memory, over four arrays of n floats.
struct MemoryLoop {
  const char* name;
  int bytes_per_element;  ///< read and written, one array of each counts 4
  void (*run)(float* a, float* b, float* c, const float* d, int64_t n);
};
/// STREAM's triad a = b + s·c, as it is stored by default and past the caches; and one that reads
/// four arrays and writes three of them in place, as AdamW does: memory is faster at that.
std::vector<MemoryLoop> memory_loops();

}  // namespace lockstep::apps
