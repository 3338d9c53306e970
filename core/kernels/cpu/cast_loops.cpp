#include "core/kernels/cpu/cast_loops.h"

#include "core/kernels/cpu/half_vec.h"

namespace lockstep::cpu {
namespace {

template <class Code>
void widen(float* out, const uint16_t* x, int64_t n) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(out + i, Code::widen(load_short(x + i)));
  if (i < n) store_n(out + i, Code::widen(load_short_n(x + i, n - i)), n - i);
}

template <class Code>
void narrow(uint16_t* out, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store_short(out + i, Code::narrow(load(x + i)));
  if (i < n) store_short_n(out + i, Code::narrow(load_n(x + i, n - i)), n - i);
}

}  // namespace

const CastLoops LOCKSTEP_LOOPS_TABLE(Cast) = {widen<Half>, narrow<Half>, widen<Bfloat16>,
                                              narrow<Bfloat16>};

}  // namespace lockstep::cpu
