#include "apps/bench/limits.h"

#include "core/kernels/cpu/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::apps {
namespace {

// More sums than a latency of 4 or 5 cycles times 2 units needs, fewer than there are registers.
constexpr int kSums = 12;

// Each function is compiled for its own instruction set and calls nothing but intrinsics.
#if defined(__x86_64__)

[[gnu::target("avx512f")]] float fma_avx512(int64_t rounds) {
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
  __m512 sums[kSums];
  for (__m512& sum : sums) sum = y;
  for (int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_fmadd_ps(sums[i], x, y);
  for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return sums[0][0];
}

[[gnu::target("avx2,fma")]] float fma_avx2(int64_t rounds) {
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
  __m256 sums[kSums];
  for (__m256& sum : sums) sum = y;
  for (int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm256_fmadd_ps(sums[i], x, y);
  for (int i = 1; i < kSums; ++i) sums[0] = _mm256_add_ps(sums[0], sums[i]);
  return sums[0][0];
}

[[gnu::target("avx512f,avx512bf16")]] float dot_avx512(int64_t rounds) {
  const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1e-3f), _mm512_set1_ps(1e-3f)), y = x;
  __m512 sums[kSums];
  for (__m512& sum : sums) sum = _mm512_set1_ps(1.0f);
  for (int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], x, y);
  for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return sums[0][0];
}

#endif

// Whatever the compiler makes of it for the oldest processors.
float fma_baseline(int64_t rounds) {
  using Vector = float __attribute__((vector_size(16)));
  const Vector x{0.999f, 0.999f, 0.999f, 0.999f}, y{1e-3f, 1e-3f, 1e-3f, 1e-3f};
  Vector sums[kSums];
  for (Vector& sum : sums) sum = y;
  for (int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = sums[i] * x + y;
  for (int i = 1; i < kSums; ++i) sums[0] += sums[i];
  return sums[0][0];
}

constexpr double flops(int floats_per_vector) { return 2.0 * kSums * floats_per_vector; }

}  // namespace

PeakLoop fp32_peak_loop() {
#if defined(__x86_64__)
  if (cpu::isa() == cpu::Isa::avx512) return {"fp32 fma avx512", flops(16), fma_avx512};
  if (cpu::isa() == cpu::Isa::avx2) return {"fp32 fma avx2", flops(8), fma_avx2};
#endif
  return {"fp32 multiply and add", flops(4), fma_baseline};
}

PeakLoop bf16_peak_loop() {
#if defined(__x86_64__)
  if (cpu::isa() == cpu::Isa::avx512 && __builtin_cpu_supports("avx512bf16"))
    return {"bf16 dot avx512", flops(32), dot_avx512};
#endif
  return {};
}

void triad(float* a, const float* b, const float* c, float s, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] = b[i] + s * c[i];
}

void triad_streaming(float* a, const float* b, const float* c, float s, int64_t n) {
  int64_t i = 0;
#if defined(__x86_64__)
  for (; i < n && reinterpret_cast<uintptr_t>(a + i) % 16 != 0; ++i) a[i] = b[i] + s * c[i];
  const __m128 factor = _mm_set1_ps(s);
  for (; i + 4 <= n; i += 4)
    _mm_stream_ps(a + i, _mm_add_ps(_mm_loadu_ps(b + i), _mm_mul_ps(factor, _mm_loadu_ps(c + i))));
  _mm_sfence();
#endif
  triad(a + i, b + i, c + i, s, n - i);
}

}  // namespace lockstep::apps
