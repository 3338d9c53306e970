#include "core/kernels/cpu/dropout_loops.h"

#include "core/kernels/cpu/philox_vec.h"

namespace lockstep::cpu {
namespace {

void dropout(float* out, const float* x, int64_t n, uint32_t threshold, float keep, PhiloxKey key,
             uint64_t first) {
  alignas(64) uint32_t words[4][kWidth];
  for (int64_t i = 0; i < n; i += 4 * kWidth) {
    const PhiloxWords drawn = philox(key, first + static_cast<uint64_t>(i / 4));
    for (int w = 0; w < 4; ++w) __builtin_memcpy(words[w], &drawn.word[w], sizeof(WordVec));
    const int64_t count = n - i < 4 * kWidth ? n - i : 4 * kWidth;
    for (int64_t j = 0; j < count; ++j)
      out[i + j] = (words[j & 3][j >> 2] >> 8) >= threshold ? x[i + j] * keep : 0.0f;
  }
}

}  // namespace

const DropoutLoops LOCKSTEP_LOOPS_TABLE(Dropout) = {dropout};

}  // namespace lockstep::cpu
