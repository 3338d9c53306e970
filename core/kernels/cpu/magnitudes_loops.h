#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// Of neighbours that have the same exponent, which is the rule in gradients, each counts in a
/// table of its own: incrementing one number again and again would wait for memory each time.
/// Tables are a little apart from multiples of 4 KiB, where the processor would take one for the
/// other.
struct MagnitudeTables {
  static constexpr int kTables = 8;
  uint32_t exponents[kTables][256 + 16];  ///< zeros count as 0, NaN as 255
  int64_t zeros, nans;                    ///< and once more here
};

struct MagnitudesLoops {
  /// Adds those of n <= 2^31 elements.
  void (*count)(MagnitudeTables* tables, const float* x, int64_t n);
};
LOCKSTEP_DECLARE_LOOPS(Magnitudes);

}  // namespace lockstep::cpu
