#include "core/kernels/cpu/uniform_loops.h"

#include "core/kernels/cpu/philox_vec.h"
#include "core/kernels/cpu/tile_vec.h"

namespace lockstep::cpu {
namespace {

typedef uint32_t HalfWordVec __attribute__((vector_size(2 * kWidth)));
typedef float HalfVec __attribute__((vector_size(2 * kWidth)));

inline HalfVec uniform(HalfWordVec words, double bound) {
  DoubleVec x;
#if defined(LOCKSTEP_ISA_Avx512)
  x = _mm512_maskz_cvtepu32_pd(0xff, reinterpret_cast<__m256i>(words));
#else
  x = __builtin_convertvector(words, DoubleVec);
#endif
  return __builtin_convertvector(bound * ((x + 0.5) * 0x1p-31 - 1.0), HalfVec);
}
inline Vec uniform(WordVec words, double bound) {
  HalfWordVec half[2];
  __builtin_memcpy(half, &words, sizeof(words));
  const HalfVec result[2] = {uniform(half[0], bound), uniform(half[1], bound)};
  Vec v;
  __builtin_memcpy(&v, result, sizeof(v));
  return v;
}

void uniform(float* out, int64_t n, double bound, PhiloxKey key, uint64_t first) {
  constexpr int64_t kAtOnce = 4 * kWidth;
  uint64_t block = first / 4;
  for (int64_t i = -static_cast<int64_t>(first % 4); i < n; i += kAtOnce, block += kWidth) {
    const PhiloxWords words = philox(key, block);
    Vec v[4];
#pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) v[w] = uniform(words.word[w], bound);
    // Words of one block become neighbours.
    const Vec even[] = {zip_low(v[0], v[2]), zip_high(v[0], v[2])},
              odd[] = {zip_low(v[1], v[3]), zip_high(v[1], v[3])};
    const bool whole = i >= 0 && i + kAtOnce <= n;
    alignas(64) float room[kAtOnce];
    float* to = whole ? out + i : room;
    for (int half = 0; half < 2; ++half) {
      store(to + 2 * half * kWidth, zip_low(even[half], odd[half]));
      store(to + (2 * half + 1) * kWidth, zip_high(even[half], odd[half]));
    }
    if (whole) continue;
    for (int64_t j = i < 0 ? -i : 0; j < kAtOnce && i + j < n; ++j) out[i + j] = room[j];
  }
}

}  // namespace

const UniformLoops LOCKSTEP_LOOPS_TABLE(Uniform) = {uniform};

}  // namespace lockstep::cpu
