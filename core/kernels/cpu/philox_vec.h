#pragma once
#include "core/kernels/cpu/philox_key.h"
#include "core/kernels/cpu/vec.h"

/// Random numbers, as many blocks of Philox at a time as a vector has lanes. Include in *_loops.cpp
/// only.
namespace lockstep::cpu {

namespace {

typedef uint64_t LongVec __attribute__((vector_size(4 * kWidth)));

// Products of the even lanes with m, as 64 bits.
inline LongVec multiply_even(WordVec a, uint32_t m) {
#if defined(LOCKSTEP_ISA_Avx512)
  return reinterpret_cast<LongVec>(_mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a),
                                                          _mm512_set1_epi32(static_cast<int>(m))));
#elif defined(LOCKSTEP_ISA_Avx2)
  return reinterpret_cast<LongVec>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), _mm256_set1_epi32(static_cast<int>(m))));
#elif defined(__x86_64__)
  return reinterpret_cast<LongVec>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a), _mm_set1_epi32(static_cast<int>(m))));
#else
  return (reinterpret_cast<LongVec>(a) & 0xffffffffu) * m;
#endif
}

struct Product {
  WordVec high, low;
};
inline Product multiply(WordVec a, uint32_t m) {
  const LongVec even = multiply_even(a, m);
  const LongVec odd =
      multiply_even(reinterpret_cast<WordVec>(reinterpret_cast<LongVec>(a) >> 32), m);
  return {reinterpret_cast<WordVec>((even >> 32) | (odd & 0xffffffff00000000u)),
          reinterpret_cast<WordVec>((even & 0xffffffffu) | (odd << 32))};
}

/// Words 0 to 3 of kWidth blocks of Philox4x32-10, from block `first` on.
struct PhiloxWords {
  WordVec word[4];
};
inline PhiloxWords philox(PhiloxKey key, uint64_t first) {
  WordVec c0, c1;
  for (int j = 0; j < kWidth; ++j) {
    c0[j] = static_cast<uint32_t>(first + j);
    c1[j] = static_cast<uint32_t>((first + j) >> 32);
  }
  WordVec c2 = key.key - WordVec{}, c3 = key.stream - WordVec{};
  uint32_t k0 = key.seed0, k1 = key.seed1;
  for (int round = 0; round < 10; ++round) {
    const Product p0 = multiply(c0, 0xD2511F53u), p1 = multiply(c2, 0xCD9E8D57u);
    c0 = p1.high ^ c1 ^ k0;
    c1 = p1.low;
    c2 = p0.high ^ c3 ^ k1;
    c3 = p0.low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace
}  // namespace lockstep::cpu
