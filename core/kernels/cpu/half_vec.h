#pragma once
#include "core/kernels/cpu/vec.h"

/// Vectors of binary16 and bfloat16 as floats and back: nearest even, overflow to infinity, NaN
/// made quiet; bit for bit what dtype.h does one at a time. Include in *_loops.cpp only.
namespace lockstep::cpu {
namespace {

typedef uint16_t ShortVec __attribute__((vector_size(2 * kWidth)));
typedef uint16_t ShortPair __attribute__((vector_size(4 * kWidth)));  // codes of two vectors
typedef uint16_t UnalignedShortPair __attribute__((vector_size(4 * kWidth), aligned(2), may_alias));
typedef uint16_t UnalignedShortVec __attribute__((vector_size(2 * kWidth), aligned(2), may_alias));

inline ShortPair join(ShortVec a, ShortVec b) {
#if defined(LOCKSTEP_ISA_Avx512)
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,
                                 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
#else
  ShortPair pair;
  __builtin_memcpy(&pair, &a, sizeof a);
  __builtin_memcpy(reinterpret_cast<char*>(&pair) + sizeof a, &b, sizeof b);
  return pair;
#endif
}

// Both codes convert vectors one at a time; and pairs, in order, or, where the order of lanes does
// not matter (split, merge), in whatever order is cheapest. round() is there and back.
struct Half {
  static Vec widen(ShortVec h) {
#if defined(LOCKSTEP_ISA_Avx512)
    return _mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(h));
#elif defined(LOCKSTEP_ISA_Avx2)
    return _mm256_cvtph_ps(reinterpret_cast<__m128i>(h));
#else
    const IntVec bits = __builtin_convertvector(h, IntVec);
    const IntVec sign = (bits & 0x8000) << 16, magnitude = (bits & 0x7fff) << 13;
    const IntVec finite =
        reinterpret_cast<IntVec>(reinterpret_cast<Vec>(magnitude) * set(0x1p112f));
    const IntVec special = magnitude | 0x7f800000 | ((magnitude > 0x0f800000) & 0x400000);
    return reinterpret_cast<Vec>((magnitude >= 0x0f800000 ? special : finite) | sign);
#endif
  }
  static ShortVec narrow(Vec v) {
#if defined(LOCKSTEP_ISA_Avx512)
    return reinterpret_cast<ShortVec>(
        _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(LOCKSTEP_ISA_Avx2)
    return reinterpret_cast<ShortVec>(
        _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
    const IntVec bits = reinterpret_cast<IntVec>(v), a = bits & 0x7fffffff;
    const WordVec odd = reinterpret_cast<WordVec>((a >> 13) & 1);
    const IntVec normal = reinterpret_cast<IntVec>(
        (reinterpret_cast<WordVec>(a) - (0x38000000u - 0xfffu) + odd) >> 13);
    // Adding 1/2 puts the last place of a subnormal half at the last place of the sum.
    const IntVec subnormal =
        reinterpret_cast<IntVec>(reinterpret_cast<Vec>(a) + set(0.5f)) - 0x3f000000;
    const IntVec nan = 0x7e00 | ((a >> 13) & 0x3ff);
    IntVec h = a < 0x38800000 ? subnormal : normal;
    h = a >= 0x47800000 ? IntVec{} + 0x7c00 : h;
    h = a > 0x7f800000 ? nan : h;
    return __builtin_convertvector(h | ((bits >> 16) & 0x8000), ShortVec);
#endif
  }
  static ShortPair narrow(Vec a, Vec b) { return join(narrow(a), narrow(b)); }
  static Vec round(Vec v) { return widen(narrow(v)); }
  static void split(ShortPair h, Vec& a, Vec& b) {
    ShortVec halves[2];
    __builtin_memcpy(halves, &h, sizeof h);
    a = widen(halves[0]);
    b = widen(halves[1]);
  }
  static ShortPair merge(Vec a, Vec b) { return narrow(a, b); }
};

struct Bfloat16 {
  static Vec widen(ShortVec h) {
#if defined(LOCKSTEP_ISA_Avx512)  // the compiler would widen one half after the other
    return reinterpret_cast<Vec>(_mm512_maskz_slli_epi32(
        0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(h)), 16));
#else
    return reinterpret_cast<Vec>(__builtin_convertvector(h, WordVec) << 16);
#endif
  }
  static ShortVec narrow(Vec v) { return __builtin_convertvector(rounded(v) >> 16, ShortVec); }
  // The upper halves of both: one shuffle where narrowing takes two instructions a vector.
  static ShortPair narrow(Vec a, Vec b) {
#if defined(LOCKSTEP_ISA_Avx512)
    const __m512i upper =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return reinterpret_cast<ShortPair>(_mm512_permutex2var_epi16(
        reinterpret_cast<__m512i>(rounded(a)), upper, reinterpret_cast<__m512i>(rounded(b))));
#elif defined(LOCKSTEP_ISA_Avx2)
    const __m256i packed = _mm256_packus_epi32(reinterpret_cast<__m256i>(rounded(a) >> 16),
                                               reinterpret_cast<__m256i>(rounded(b) >> 16));
    return reinterpret_cast<ShortPair>(_mm256_permute4x64_epi64(packed, 0xd8));
#else
    return join(narrow(a), narrow(b));
#endif
  }

  static Vec round(Vec v) { return reinterpret_cast<Vec>(rounded(v) & 0xffff0000u); }
  // Even and odd codes: no lane moves.
  static void split(ShortPair h, Vec& a, Vec& b) {
    const WordVec words = reinterpret_cast<WordVec>(h);
    a = reinterpret_cast<Vec>(words << 16);
    b = reinterpret_cast<Vec>(words & 0xffff0000u);
  }
  static ShortPair merge(Vec a, Vec b) {
    return reinterpret_cast<ShortPair>((rounded(a) >> 16) | (rounded(b) & 0xffff0000u));
  }

 private:
  // The code in the upper half of each lane.
  static WordVec rounded(Vec v) {
    const WordVec bits = reinterpret_cast<WordVec>(v);
    const WordVec nearest = bits + (((bits >> 16) & 1u) + 0x7fffu);
#if defined(LOCKSTEP_ISA_Avx512)
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return reinterpret_cast<WordVec>(_mm512_mask_or_epi32(reinterpret_cast<__m512i>(nearest), nan,
                                                          reinterpret_cast<__m512i>(v),
                                                          _mm512_set1_epi32(0x400000)));
#else
    return (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : nearest;
#endif
  }
};

inline ShortVec load_short(const uint16_t* p) {
  return *reinterpret_cast<const UnalignedShortVec*>(p);
}
inline void store_short(uint16_t* p, ShortVec v) { *reinterpret_cast<UnalignedShortVec*>(p) = v; }
inline ShortPair load_pair(const uint16_t* p) {
  return *reinterpret_cast<const UnalignedShortPair*>(p);
}
inline void store_pair(uint16_t* p, ShortPair v) { *reinterpret_cast<UnalignedShortPair*>(p) = v; }
inline ShortVec load_short_n(const uint16_t* p, int64_t n) {
#if defined(LOCKSTEP_ISA_Avx512)
  return reinterpret_cast<ShortVec>(
      _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1u), p));
#else
  ShortVec v{};
  __builtin_memcpy(&v, p, static_cast<unsigned long>(n) * 2);
  return v;
#endif
}
inline void store_short_n(uint16_t* p, ShortVec v, int64_t n) {
#if defined(LOCKSTEP_ISA_Avx512)
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1u), reinterpret_cast<__m256i>(v));
#else
  __builtin_memcpy(p, &v, static_cast<unsigned long>(n) * 2);
#endif
}

}  // namespace
}  // namespace lockstep::cpu
