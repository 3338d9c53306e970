#include "core/kernels/cpu/dropout_loops.h"

#include "core/kernels/cpu/vec.h"

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

// kWidth blocks of Philox4x32-10; words[w][j] is word w of block first + j.
inline void philox(uint32_t (*words)[kWidth], PhiloxKey key, uint64_t first) {
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
  const WordVec c[] = {c0, c1, c2, c3};
  for (int w = 0; w < 4; ++w) __builtin_memcpy(words[w], &c[w], sizeof(WordVec));
}

void dropout(float* out, const float* x, int64_t n, uint32_t threshold, float keep, PhiloxKey key,
             uint64_t first) {
  uint32_t words[4][kWidth];
  for (int64_t i = 0; i < n; i += 4 * kWidth) {
    philox(words, key, first + static_cast<uint64_t>(i / 4));
    const int64_t count = n - i < 4 * kWidth ? n - i : 4 * kWidth;
    for (int64_t j = 0; j < count; ++j)
      out[i + j] = (words[j & 3][j >> 2] >> 8) >= threshold ? x[i + j] * keep : 0.0f;
  }
}

}  // namespace

const DropoutLoops LOCKSTEP_LOOPS_TABLE(Dropout) = {dropout};

}  // namespace lockstep::cpu
