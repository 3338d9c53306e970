#pragma once
#include "core/kernels/cpu/vec.h"

/// Vectors of integers as bytes and back, and as their largest; runs of elements that need not be
/// whole vectors. Include in *_loops.cpp only.
namespace lockstep::cpu {
namespace {

typedef uint8_t ByteVec __attribute__((vector_size(kWidth)));
typedef uint8_t UnalignedByteVec __attribute__((vector_size(kWidth), aligned(1), may_alias));

inline ByteVec load_bytes(const uint8_t* p) {
  return *reinterpret_cast<const UnalignedByteVec*>(p);
}
inline void store_bytes(uint8_t* p, ByteVec v) { *reinterpret_cast<UnalignedByteVec*>(p) = v; }
inline void copy(void* to, const void* from, int64_t n) {
  __builtin_memcpy(to, from, static_cast<unsigned long>(n));
}
inline ByteVec load_bytes_n(const uint8_t* p, int64_t n) {
  ByteVec v{};
  copy(&v, p, n);
  return v;
}
inline IntVec widen_bytes(ByteVec v) {
#if defined(LOCKSTEP_ISA_Avx512)
  return reinterpret_cast<IntVec>(_mm512_maskz_cvtepu8_epi32(0xffff, reinterpret_cast<__m128i>(v)));
#elif defined(LOCKSTEP_ISA_Avx2)
  return reinterpret_cast<IntVec>(
      _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(reinterpret_cast<int64_t>(v))));
#elif defined(__x86_64__)
  const __m128i zero = _mm_setzero_si128();
  return reinterpret_cast<IntVec>(_mm_unpacklo_epi16(
      _mm_unpacklo_epi8(_mm_cvtsi32_si128(reinterpret_cast<int32_t>(v)), zero), zero));
#else
  return __builtin_convertvector(v, IntVec);
#endif
}
// Of integers from 0 to 255.
inline ByteVec narrow_bytes(IntVec v) {
#if defined(LOCKSTEP_ISA_Avx2)
  const __m256i wide = reinterpret_cast<__m256i>(v);
  const __m128i half =
      _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  return reinterpret_cast<ByteVec>(_mm_cvtsi128_si64(_mm_packus_epi16(half, half)));
#elif defined(__x86_64__) && !defined(LOCKSTEP_ISA_Avx512)
  const __m128i half = _mm_packs_epi32(reinterpret_cast<__m128i>(v), reinterpret_cast<__m128i>(v));
  return reinterpret_cast<ByteVec>(_mm_cvtsi128_si32(_mm_packus_epi16(half, half)));
#else
  return __builtin_convertvector(v, ByteVec);
#endif
}
inline IntVec larger(IntVec a, IntVec b) {
#if defined(LOCKSTEP_ISA_Avx512)
  return reinterpret_cast<IntVec>(
      _mm512_maskz_max_epi32(0xffff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(LOCKSTEP_ISA_Avx2)
  return reinterpret_cast<IntVec>(
      _mm256_max_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return a > b ? a : b;
#endif
}
inline IntVec smaller(IntVec a, IntVec b) {
#if defined(LOCKSTEP_ISA_Avx512)
  return reinterpret_cast<IntVec>(
      _mm512_maskz_min_epi32(0xffff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(LOCKSTEP_ISA_Avx2)
  return reinterpret_cast<IntVec>(
      _mm256_min_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return a < b ? a : b;
#endif
}
inline int32_t reduce_larger(IntVec v) {
#if defined(LOCKSTEP_ISA_Avx512)
  v = larger(v,
             __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3));
  v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1));
  return v[0] > v[1] ? v[0] : v[1];
#elif defined(LOCKSTEP_ISA_Avx2)
  v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
  v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 2, 3, 0, 1));
  return v[0] > v[1] ? v[0] : v[1];
#else
  v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1));
  return v[0] > v[1] ? v[0] : v[1];
#endif
}
inline IntVec magnitude_bits(Vec x) { return reinterpret_cast<IntVec>(x) & set_int(0x7fffffff); }

// f(at, loads, stores…) as whole vectors, then once more for what is left.
template <class Whole, class Rest>
[[gnu::always_inline]] inline void vectors(int64_t n, Whole whole, Rest rest) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) whole(i);
  if (i < n) rest(i, n - i);
}

}  // namespace
}  // namespace lockstep::cpu
