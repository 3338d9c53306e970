#include "core/kernels/cpu/cast_loops.h"

#include "core/kernels/cpu/half_vec.h"

namespace lockstep::cpu {
namespace {

// Elements of a call from which on results go past the caches, as the C library copies: what is
// larger than they are would only push everything else out, and cost a read of each line written.
constexpr int64_t kStreamed = 8 << 20;

// Then four pages are read side by side, and the next four fetched: the processor's own prefetching
// ends with each page, and one at a time takes a third longer than a copy of as many bytes.
constexpr int64_t kPage = 1024, kPages = 4;  // in floats

// A whole line at `p`, which must be aligned to the vector's size.
template <class V>
inline void stream(void* p, V v) {
#if defined(LOCKSTEP_ISA_Avx512)
  _mm512_stream_si512(static_cast<__m512i*>(p), reinterpret_cast<__m512i>(v));
#elif defined(LOCKSTEP_ISA_Avx2)
  _mm256_stream_si256(static_cast<__m256i*>(p), reinterpret_cast<__m256i>(v));
#elif defined(__x86_64__)
  _mm_stream_si128(static_cast<__m128i*>(p), reinterpret_cast<__m128i>(v));
#else
  __builtin_memcpy(p, &v, sizeof v);
#endif
}
inline void prefetch(const float* p) { __builtin_prefetch(p + kPages * kPage); }
// Before other threads are told of what was streamed.
inline void finish_streaming() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}
// Elements before the first aligned vector; -1 where elements straddle lines for ever.
template <class T>
inline int64_t before_aligned(const T* p) {
  const uintptr_t bytes = -reinterpret_cast<uintptr_t>(p) % (4 * kWidth);
  return bytes % sizeof(T) == 0 ? static_cast<int64_t>(bytes / sizeof(T)) : -1;
}

template <class Code>
void widen(float* out, const uint16_t* x, int64_t n) {
  int64_t i = 0;
  const auto step = [&](int64_t most) {
    if (most >= kWidth)
      store(out + i, Code::widen(load_short(x + i)));
    else
      store_n(out + i, Code::widen(load_short_n(x + i, most)), most);
    i += most < kWidth ? most : kWidth;
  };
  const int64_t head = n >= kStreamed ? before_aligned(out) : -1;
  if (head >= 0) {
    if (head > 0) step(head);
    for (; i + kWidth <= n; i += kWidth) stream(out + i, Code::widen(load_short(x + i)));
    finish_streaming();
  }
  while (i + kWidth <= n) step(kWidth);
  if (i < n) step(n - i);
}

template <class Code>
void narrow(uint16_t* out, const float* x, int64_t n) {
  int64_t i = 0;
  const auto step = [&](int64_t most) {
    if (most >= kWidth)
      store_short(out + i, Code::narrow(load(x + i)));
    else
      store_short_n(out + i, Code::narrow(load_n(x + i, most)), most);
    i += most < kWidth ? most : kWidth;
  };
  const int64_t head = n >= kStreamed ? before_aligned(out) : -1;
  if (head >= 0) {
    while (i < head) step(head - i);
    for (; i + kPages * kPage <= n; i += kPages * kPage)
      for (int64_t j = i; j < i + kPage; j += 2 * kWidth)
        for (int64_t at = j; at < j + kPages * kPage; at += kPage) {
          prefetch(x + at);
          prefetch(x + at + kWidth);
          stream(out + at, Code::narrow(load(x + at), load(x + at + kWidth)));
        }
    finish_streaming();
  }
  for (; i + 2 * kWidth <= n; i += 2 * kWidth)
    store_pair(out + i, Code::narrow(load(x + i), load(x + i + kWidth)));
  while (i < n) step(n - i);
}

}  // namespace

const CastLoops LOCKSTEP_LOOPS_TABLE(Cast) = {widen<Half>, narrow<Half>, widen<Bfloat16>,
                                              narrow<Bfloat16>};

}  // namespace lockstep::cpu
