#pragma once
#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/// Vectors of floats as wide as the instruction set that this file is being compiled for (GCC's
/// vector extensions; + - * / and comparisons work as they are). Everything has internal linkage:
/// see Note [One table per instruction set] in isa.h. Include in *_loops.cpp only.
namespace lockstep::cpu {
namespace {

#if defined(LOCKSTEP_ISA_Avx512)
constexpr int kWidth = 16;
#elif defined(LOCKSTEP_ISA_Avx2)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * kWidth)));
typedef int32_t IntVec __attribute__((vector_size(4 * kWidth)));
typedef uint32_t WordVec __attribute__((vector_size(4 * kWidth)));
typedef double DoubleVec __attribute__((vector_size(4 * kWidth)));  // half as many lanes
typedef float UnalignedVec __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));
typedef int32_t UnalignedIntVec __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));
typedef float UnalignedHalfVec __attribute__((vector_size(2 * kWidth), aligned(4), may_alias));

inline Vec set(float x) { return x - Vec{}; }  // minus: keeps the sign of -0
inline IntVec set_int(int32_t x) { return x - IntVec{}; }
inline Vec load(const float* p) { return *reinterpret_cast<const UnalignedVec*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<UnalignedVec*>(p) = v; }
inline IntVec iota() {
  IntVec v;
  for (int i = 0; i < kWidth; ++i) v[i] = i;
  return v;
}

/// The first n < kWidth lanes; the others are 0. Memory beyond them is not touched.
inline Vec load_n(const float* p, int64_t n) {
#if defined(LOCKSTEP_ISA_Avx512)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p);
#elif defined(LOCKSTEP_ISA_Avx2)
  return _mm256_maskload_ps(p,
                            reinterpret_cast<__m256i>(iota() < set_int(static_cast<int32_t>(n))));
#else
  float lanes[kWidth] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
#endif
}
inline void store_n(float* p, Vec v, int64_t n) {
#if defined(LOCKSTEP_ISA_Avx512)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), v);
#elif defined(LOCKSTEP_ISA_Avx2)
  _mm256_maskstore_ps(p, reinterpret_cast<__m256i>(iota() < set_int(static_cast<int32_t>(n))), v);
#else
  float lanes[kWidth];
  store(lanes, v);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
#endif
}

/// a where the lane's mask (a comparison's result) is set, else b.
inline Vec select(IntVec mask, Vec a, Vec b) { return mask ? a : b; }
/// v in the first n lanes, `rest` in the others.
inline Vec keep_n(Vec v, int64_t n, Vec rest) {
  return select(iota() < set_int(static_cast<int32_t>(n)), v, rest);
}

/// a·b + c: one rounding where the instruction set has it. Files are compiled with
/// -ffp-contract=off, so that only this contracts.
inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(LOCKSTEP_ISA_Avx512)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(LOCKSTEP_ISA_Avx2)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}
inline Vec fnma(Vec a, Vec b, Vec c) { return fma(-a, b, c); }
/// Where either is NaN these give b.
inline Vec max(Vec a, Vec b) {
#if defined(LOCKSTEP_ISA_Avx512)
  return _mm512_maskz_max_ps(0xffff, a, b);
#elif defined(LOCKSTEP_ISA_Avx2)
  return _mm256_max_ps(a, b);
#elif defined(__x86_64__)
  return _mm_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
inline Vec min(Vec a, Vec b) {
#if defined(LOCKSTEP_ISA_Avx512)
  return _mm512_maskz_min_ps(0xffff, a, b);
#elif defined(LOCKSTEP_ISA_Avx2)
  return _mm256_min_ps(a, b);
#elif defined(__x86_64__)
  return _mm_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}
inline Vec abs(Vec a) {
  return reinterpret_cast<Vec>(reinterpret_cast<IntVec>(a) & set_int(0x7fffffff));
}
inline Vec sqrt(Vec a) {
#if defined(LOCKSTEP_ISA_Avx512)
  return _mm512_maskz_sqrt_ps(0xffff, a);
#elif defined(LOCKSTEP_ISA_Avx2)
  return _mm256_sqrt_ps(a);
#else
  for (int i = 0; i < kWidth; ++i) a[i] = __builtin_sqrtf(a[i]);
  return a;
#endif
}

/// Lanes folded by halves: the order is fixed by the instruction set.
template <class Fold>
inline float reduce(Vec v, Fold fold) {
#if defined(__x86_64__)
#if defined(LOCKSTEP_ISA_Avx512)
  const __m256 half = fold(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                           __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
  __m128 w = fold(__builtin_shufflevector(half, half, 0, 1, 2, 3),
                  __builtin_shufflevector(half, half, 4, 5, 6, 7));
#elif defined(LOCKSTEP_ISA_Avx2)
  __m128 w =
      fold(__builtin_shufflevector(v, v, 0, 1, 2, 3), __builtin_shufflevector(v, v, 4, 5, 6, 7));
#else
  __m128 w = v;
#endif
  w = fold(w, _mm_movehl_ps(w, w));
  w = fold(w, _mm_shuffle_ps(w, w, 1));
  return _mm_cvtss_f32(w);
#else
  for (int half = kWidth / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) v[i] = fold(v[i], v[i + half]);
  return v[0];
#endif
}
inline float reduce_add(Vec v) {
  return reduce(v, [](auto a, auto b) { return a + b; });
}
inline float reduce_max(Vec v) {
  return reduce(v, [](auto a, auto b) { return a > b ? a : b; });
}
inline double reduce_add(DoubleVec v) {
  double sum = 0;
  for (int i = 0; i < kWidth / 2; ++i) sum += v[i];
  return sum;
}
/// kWidth / 2 floats as doubles.
inline DoubleVec load_double(const float* p) {
#if defined(LOCKSTEP_ISA_Avx512)  // the compiler would convert one half after the other
  return _mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(p));
#else
  return __builtin_convertvector(*reinterpret_cast<const UnalignedHalfVec*>(p), DoubleVec);
#endif
}

// The polynomials below are least-maximum fits on the named intervals (relative error under 1e-8).

/// v · 2^n for integral n in [-252, 254], rounded once where the result is subnormal.
inline Vec scale_by_power(Vec v, Vec n) {
#if defined(LOCKSTEP_ISA_Avx512)
  return _mm512_maskz_scalef_ps(0xffff, v, n);
#else
  const IntVec k = __builtin_convertvector(n, IntVec), k1 = k >> 1,
               k2 = k - k1;  // 2^128 is no float
  return v * reinterpret_cast<Vec>((k1 + 127) << 23) * reinterpret_cast<Vec>((k2 + 127) << 23);
#endif
}

/// e^x within 2 ulp; 0 below -103.97, infinity above 88.72.
inline Vec exp(Vec x) {
  const Vec clamped = min(set(89.0f), max(set(-104.0f), x));             // in this order NaN passes
  const Vec shifted = fma(clamped, set(1.44269504f), set(12582912.0f));  // rounds to an integer
  const Vec n = shifted - set(12582912.0f);
  const Vec r = fnma(n, set(1.42860677e-6f), fnma(n, set(0.693145752f), clamped));
  Vec p = set(1.395048814e-03f);  // (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2
  p = fma(p, r, set(8.368889659e-03f));
  p = fma(p, r, set(4.166620584e-02f));
  p = fma(p, r, set(1.666651884e-01f));
  p = fma(p, r, set(5.000000095e-01f));
  p = fma(p * r, r, r) + set(1.0f);
  return scale_by_power(p, n);
}

/// 2^f for |f| <= 1 / 2, exactly 1 at 0.
inline Vec exp2_near_0(Vec f) {
  Vec p = set(1.559467759e-04f);  // (2^f - 1) / f
  p = fma(p, f, set(1.340664391e-03f));
  p = fma(p, f, set(9.617692975e-03f));
  p = fma(p, f, set(5.550310551e-02f));
  p = fma(p, f, set(2.402265278e-01f));
  p = fma(p, f, set(6.931472150e-01f));
  return fma(p, f, set(1.0f));
}

/// e^x for x at most 88, as good as an argument that was rounded deserves: the relative error stays
/// below 2^-22 + |x| 2^-26, without fma |x| 2^-24. Exactly 1 at 0, 0 below -103.97.
inline Vec quick_exp(Vec x) {
  const Vec clamped = max(set(-104.0f), x);                              // in this order NaN passes
  const Vec shifted = fma(clamped, set(1.44269504f), set(12582912.0f));  // rounds to an integer
  const Vec n = shifted - set(12582912.0f);
  const Vec f = fma(clamped, set(1.44269504f), -n);
  return scale_by_power(exp2_near_0(f), n);
}

/// Natural logarithm within 2 ulp: -infinity at 0, NaN below.
inline Vec log(Vec x) {
  const IntVec tiny = x < set(1.17549435e-38f);
  const Vec scaled = select(tiny, x * set(8388608.0f), x);
  const WordVec bits = reinterpret_cast<WordVec>(scaled);
  // The exponent that leaves a mantissa in [sqrt(1/2), sqrt(2)).
  IntVec e = reinterpret_cast<IntVec>(bits - 0x3f3504f3u) >> 23;
  const Vec f = reinterpret_cast<Vec>(bits - (reinterpret_cast<WordVec>(e) << 23)) - set(1.0f);
  e -= tiny & 23;
  Vec p = set(6.915296995e-02f);  // (log(1 + f) - f + f^2 / 2) / f^3
  p = fma(p, f, set(-1.178977177e-01f));
  p = fma(p, f, set(1.187298920e-01f));
  p = fma(p, f, set(-1.238435547e-01f));
  p = fma(p, f, set(1.421865722e-01f));
  p = fma(p, f, set(-1.666925038e-01f));
  p = fma(p, f, set(2.000222664e-01f));
  p = fma(p, f, set(-2.499998661e-01f));
  p = fma(p, f, set(3.333331044e-01f));
  const Vec n = __builtin_convertvector(e, Vec), f2 = f * f;
  Vec y = fma(n, set(1.42860677e-6f), f2 * f * p);
  y = fma(set(-0.5f), f2, y) + f;
  y = fma(n, set(0.693145752f), y);
  y = select(x == set(__builtin_inff()), x, y);
  y = select(x == set(0.0f), set(-__builtin_inff()), y);
  return select(x >= set(0.0f), y, set(__builtin_nanf("")));
}

/// Hyperbolic tangent within 3 ulp.
inline Vec tanh(Vec x) {
  const Vec a = abs(x), z = a * a;
  Vec p = set(-5.717045621e-03f);  // (tanh(x) / x - 1) / x^2 on |x| <= 0.625
  p = fma(p, z, set(2.065058788e-02f));
  p = fma(p, z, set(-5.374349829e-02f));
  p = fma(p, z, set(1.333149129e-01f));
  p = fma(p, z, set(-3.333328393e-01f));
  const Vec small = fma(p * z, a, a);
  const Vec large = set(1.0f) - set(2.0f) / (exp(a + a) + set(1.0f));
  const Vec y = select(a < set(0.625f), small, large);
  const IntVec sign = reinterpret_cast<IntVec>(x) & set_int(INT32_MIN);
  return reinterpret_cast<Vec>(reinterpret_cast<IntVec>(y) | sign);
}

/// The normal distribution's Φ(x) and density φ(x), each within 5 ulp of itself to |x| = 6 and 12
/// in the tails (without fma 18 and 70): Φ(-|x|) = e^(-x²/2) · q(u) · u, u = 1 / (1 + 0.35 |x| /
/// sqrt(2)). Beyond |x| = 14.5 both are what they are there: 0, 1 and 0. NaN passes.
struct Normal {
  Vec cumulative, density;
};
inline Normal normal(Vec x) {
  const Vec a = min(set(14.5f), abs(x));
  // e^(-a²/2) = 2^(h a), with what the rounding of h lost.
  const Vec c = set(-0.721347511f), h = c * a, lost = fma(c, a, -h);  // without fma: 0
  const Vec n = fma(h, a, set(12582912.0f)) - set(12582912.0f);       // rounds to an integer
  const Vec e = scale_by_power(exp2_near_0(fma(lost, a, fma(h, a, -n))), n);
  const Vec u = set(1.0f) / fma(set(0.247487373f), a, set(1.0f));
  Vec q = set(1.954103890e-02f);
  q = fma(q, u, set(-8.136616795e-02f));
  q = fma(q, u, set(9.534347290e-02f));
  q = fma(q, u, set(-2.021687439e-02f));
  q = fma(q, u, set(4.900369821e-02f));
  q = fma(q, u, set(6.994849380e-02f));
  q = fma(q, u, set(7.670412765e-02f));
  q = fma(q, u, set(9.370113295e-02f));
  q = fma(q, u, set(9.860092240e-02f));
  q = fma(q, u, set(9.874015930e-02f));
  const Vec tail = e * (q * u);
  return {select(x < set(0.0f), tail, set(1.0f) - tail), e * set(0.398942280f)};
}

}  // namespace
}  // namespace lockstep::cpu
