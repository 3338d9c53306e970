#include "core/kernels/cpu/sort_rows.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep::cpu {
namespace {

constexpr int kMostBits = 11;  // of a digit: its counters stay in the first-level cache

}  // namespace

void sort_rows(uint64_t* entries, uint64_t* other, int64_t n, int64_t rows) {
  if (n < 32) {  // the lower halves ascend already
    for (int64_t i = 1; i < n; ++i) {
      const uint64_t x = entries[i];
      int64_t at = i;
      for (; at > 0 && entries[at - 1] >> 32 > x >> 32; --at) entries[at] = entries[at - 1];
      entries[at] = x;
    }
    return;
  }
  const int bits = std::bit_width(static_cast<uint64_t>(rows - 1));
  const int passes = (bits + kMostBits - 1) / kMostBits;
  const int digit = passes == 0 ? 0 : (bits + passes - 1) / passes;
  const uint64_t mask = (uint64_t{1} << digit) - 1;
  uint64_t *from = entries, *to = other;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = 32 + pass * digit;
    uint32_t places[1 << kMostBits], place = 0;
    std::fill_n(places, mask + 1, 0);
    for (int64_t i = 0; i < n; ++i) ++places[from[i] >> shift & mask];
    for (uint64_t d = 0; d <= mask; ++d) place += std::exchange(places[d], place);
    for (int64_t i = 0; i < n; ++i) to[places[from[i] >> shift & mask]++] = from[i];
    std::swap(from, to);
  }
  if (from != entries) std::copy_n(from, n, entries);
}

}  // namespace lockstep::cpu
