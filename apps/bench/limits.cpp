#include "apps/bench/limits.h"

#include "core/kernels/cpu/isa.h"

#include <algorithm>

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

// Sixteen floats at any address, in as many registers as the instruction set needs.
using Floats = float __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int64_t kFloats = 16;
constexpr float kFactor = 1e-9f;

[[gnu::always_inline]] inline Floats& at(float* p) { return *reinterpret_cast<Floats*>(p); }
[[gnu::always_inline]] inline const Floats& at(const float* p) {
  return *reinterpret_cast<const Floats*>(p);
}

[[gnu::always_inline]] inline void triad_loop(float* a, const float* b, const float* c, int64_t n) {
  int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) at(a + i) = at(b + i) + kFactor * at(c + i);
  for (; i < n; ++i) a[i] = b[i] + kFactor * c[i];
}

[[gnu::always_inline]] inline void in_place_loop(float* a, float* b, float* c, const float* d,
                                                 int64_t n) {
  int64_t i = 0;
  for (; i + kFloats <= n; i += kFloats) {
    const Floats x = kFactor * at(d + i);
    at(a + i) += x;
    at(b + i) += x;
    at(c + i) += x;
  }
  for (; i < n; ++i) {
    const float x = kFactor * d[i];
    a[i] += x, b[i] += x, c[i] += x;
  }
}

void triad(float* a, float* b, float* c, const float*, int64_t n) { triad_loop(a, b, c, n); }
void in_place(float* a, float* b, float* c, const float* d, int64_t n) {
  in_place_loop(a, b, c, d, n);
}

#if defined(__x86_64__)

// Elements before the next whole vector of `bytes`.
int64_t to_boundary(const float* p, uintptr_t bytes, int64_t n) {
  const auto past = reinterpret_cast<uintptr_t>(p) % bytes;
  return past == 0 ? 0 : std::min<int64_t>(n, static_cast<int64_t>((bytes - past) / sizeof(float)));
}

void triad_streaming(float* a, float* b, float* c, const float*, int64_t n) {
  int64_t i = to_boundary(a, 16, n);
  triad_loop(a, b, c, i);
  const __m128 factor = _mm_set1_ps(kFactor);
  for (; i + 4 <= n; i += 4)
    _mm_stream_ps(a + i, _mm_add_ps(_mm_loadu_ps(b + i), _mm_mul_ps(factor, _mm_loadu_ps(c + i))));
  _mm_sfence();
  triad_loop(a + i, b + i, c + i, n - i);
}

[[gnu::target("avx512f")]] void triad_avx512(float* a, float* b, float* c, const float*,
                                             int64_t n) {
  triad_loop(a, b, c, n);
}
[[gnu::target("avx512f")]] void in_place_avx512(float* a, float* b, float* c, const float* d,
                                                int64_t n) {
  in_place_loop(a, b, c, d, n);
}
[[gnu::target("avx512f")]] void triad_streaming_avx512(float* a, float* b, float* c, const float*,
                                                       int64_t n) {
  int64_t i = to_boundary(a, 64, n);
  triad_loop(a, b, c, i);
  const __m512 factor = _mm512_set1_ps(kFactor);
  for (; i + kFloats <= n; i += kFloats)
    _mm512_stream_ps(a + i,
                     _mm512_fmadd_ps(factor, _mm512_loadu_ps(c + i), _mm512_loadu_ps(b + i)));
  _mm_sfence();
  triad_loop(a + i, b + i, c + i, n - i);
}

#endif

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

std::vector<MemoryLoop> memory_loops() {
#if defined(__x86_64__)
  if (cpu::isa() == cpu::Isa::avx512)
    return {{"triad cached", 12, triad_avx512},
            {"triad streaming", 12, triad_streaming_avx512},
            {"in place", 28, in_place_avx512}};
  return {{"triad cached", 12, triad},
          {"triad streaming", 12, triad_streaming},
          {"in place", 28, in_place}};
#else
  return {{"triad cached", 12, triad}, {"in place", 28, in_place}};
#endif
}

}  // namespace lockstep::apps
