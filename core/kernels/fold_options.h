#pragma once
#include <stdint.h>

namespace lockstep {

/// `mean` divides the sum by the number of inputs; of integers, the quotient is cut towards zero
/// (1, 1, 2 give 1). `max` and `min` give NaN where an input holds one.
enum class FoldOp : uint8_t { sum, mean, max, min };
/// The dtype that f16 and bf16 are added in: f32 with one rounding at the end, or their own, with a
/// rounding after every step, as a ring in that type would.
enum class FoldIn : uint8_t { f32, wire };

struct FoldOptions {
  FoldOp op = FoldOp::sum;
  FoldIn in = FoldIn::f32;
  float pre = 1, post = 1;  ///< of floating dtypes only
};

}  // namespace lockstep
