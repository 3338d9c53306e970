#include "apps/bench/row_limits.h"

#include "core/kernels/cpu/isa.h"

namespace lockstep::apps {
namespace {

// A row, in as many registers as the instruction set needs. Each function is compiled for its own
// set and calls nothing.
using Row = float __attribute__((vector_size(4 * kRowFloats), aligned(4), may_alias));

[[gnu::always_inline]] inline float read_loop(const float* table, const int64_t* rows, int64_t n,
                                              int64_t ahead) {
  Row sum = {};
  for (int64_t i = 0; i < n; ++i) {
    if (i + ahead < n) __builtin_prefetch(table + rows[i + ahead] * kRowFloats);
    sum += *reinterpret_cast<const Row*>(table + rows[i] * kRowFloats);
  }
  return sum[0] + sum[kRowFloats - 1];
}

[[gnu::always_inline]] inline void update_loop(float* table, const int64_t* rows, int64_t n,
                                               int64_t ahead) {
  for (int64_t i = 0; i < n; ++i) {
    if (i + ahead < n) __builtin_prefetch(table + rows[i + ahead] * kRowFloats, 1);
    *reinterpret_cast<Row*>(table + rows[i] * kRowFloats) += 1e-9f;
  }
}

float read(const float* table, const int64_t* rows, int64_t n, int64_t ahead) {
  return read_loop(table, rows, n, ahead);
}
void update(float* table, const int64_t* rows, int64_t n, int64_t ahead) {
  update_loop(table, rows, n, ahead);
}

#if defined(__x86_64__)
[[gnu::target("avx512f")]] float read_avx512(const float* table, const int64_t* rows, int64_t n,
                                             int64_t ahead) {
  return read_loop(table, rows, n, ahead);
}
[[gnu::target("avx512f")]] void update_avx512(float* table, const int64_t* rows, int64_t n,
                                              int64_t ahead) {
  update_loop(table, rows, n, ahead);
}
#endif

}  // namespace

RowLoops row_loops() {
#if defined(__x86_64__)
  if (cpu::isa() == cpu::Isa::avx512) return {read_avx512, update_avx512};
#endif
  return {read, update};
}

}  // namespace lockstep::apps
