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

// Philox with a word to a lane of 64 bits, of which only the lower half counts: products come out
// where they are wanted. Several vectors of blocks side by side hide what multiplying takes.
constexpr int kBlocks = kWidth / 2;
inline LongVec upper_to_lower(LongVec v) {
#if defined(LOCKSTEP_ISA_Avx512)
  return reinterpret_cast<LongVec>(
      _mm512_maskz_shuffle_epi32(0xffff, reinterpret_cast<__m512i>(v), _MM_PERM_DDBB));
#else
  return v >> 32;
#endif
}
inline LongVec times(LongVec a, uint32_t m) {
  return multiply_even(reinterpret_cast<WordVec>(a), m);
}
inline LongVec zip_longs_low(LongVec a, LongVec b) {
#if defined(LOCKSTEP_ISA_Avx512)
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#elif defined(LOCKSTEP_ISA_Avx2)
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#else
  return __builtin_shufflevector(a, b, 0, 2);
#endif
}
inline LongVec zip_longs_high(LongVec a, LongVec b) {
#if defined(LOCKSTEP_ISA_Avx512)
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#elif defined(LOCKSTEP_ISA_Avx2)
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#else
  return __builtin_shufflevector(a, b, 1, 3);
#endif
}
// The words of kSideBySide · kBlocks blocks from `first` on, in order.
template <int kSideBySide>
inline void words_of(uint16_t* out, PhiloxKey key, uint64_t first) {
  LongVec c0[kSideBySide], c1[kSideBySide], c2[kSideBySide], c3[kSideBySide];
#pragma GCC unroll 4
  for (int v = 0; v < kSideBySide; ++v) {
    LongVec block = first + static_cast<uint64_t>(v * kBlocks) - LongVec{};
    for (int lane = 0; lane < kBlocks; ++lane) block[lane] += static_cast<uint64_t>(lane);
    c0[v] = block;
    c1[v] = block >> 32;
    c2[v] = uint64_t{key.key} - LongVec{};
    c3[v] = uint64_t{key.stream} - LongVec{};
  }
  uint32_t k0 = key.seed0, k1 = key.seed1;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const LongVec key0 = uint64_t{k0} - LongVec{}, key1 = uint64_t{k1} - LongVec{};
#pragma GCC unroll 4
    for (int v = 0; v < kSideBySide; ++v) {
      const LongVec p0 = times(c0[v], 0xD2511F53u), p1 = times(c2[v], 0xCD9E8D57u);
      c0[v] = upper_to_lower(p1) ^ c1[v] ^ key0;
      c1[v] = p1;
      c2[v] = upper_to_lower(p0) ^ c3[v] ^ key1;
      c3[v] = p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
#pragma GCC unroll 4
  for (int v = 0; v < kSideBySide; ++v) {
    const LongVec lower = (c0[v] & 0xffffffffu) | (c1[v] << 32),
                  upper = (c2[v] & 0xffffffffu) | (c3[v] << 32);
    const LongVec both[] = {zip_longs_low(lower, upper), zip_longs_high(lower, upper)};
    __builtin_memcpy(out + v * 8 * kBlocks, both, sizeof both);
  }
}
void halves(uint16_t* out, int64_t n, PhiloxKey key, uint64_t block) {
  constexpr int64_t kSome = 8 * kBlocks, kMany = 4 * kSome;
  int64_t i = 0;
  for (; i + kMany <= n; i += kMany, block += 4 * kBlocks) words_of<4>(out + i, key, block);
  for (; i + kSome <= n; i += kSome, block += kBlocks) words_of<1>(out + i, key, block);
  if (i == n) return;
  alignas(64) uint16_t room[kSome];
  words_of<1>(room, key, block);
  __builtin_memcpy(out + i, room, 2 * static_cast<unsigned long>(n - i));
}

}  // namespace

const UniformLoops LOCKSTEP_LOOPS_TABLE(Uniform) = {uniform, halves};

}  // namespace lockstep::cpu
