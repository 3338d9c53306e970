#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// The parts that the codes of quantize.h are made of. All have the same bits on every set.
struct QuantizeLoops {
  /// x[i] = values[i] + scale · residual[i]. The bits of the largest magnitude: those of infinity
  /// or more where an element is not finite.
  uint32_t (*add_residual)(float* x, const float* values, const float* residual, float scale,
                           int64_t n);
  uint32_t (*largest)(const float* x, int64_t n);
  /// next[i] = (x[i] - decoded[i]) · factor
  void (*keep)(float* next, const float* x, const float* decoded, float factor, int64_t n);
  /// Sums of magnitudes and squares of factor · x, and how many are zero; n at most 4096.
  struct Sums {
    double magnitudes, squares;
    int64_t zeros;
  };
  Sums (*sums)(const float* x, float factor, int64_t n);
  struct Range {
    float least, largest;
  };
  Range (*range)(const float* x, int64_t n);

  /// codes[i] = round((pre · x[i] - base) · inverse) + offset, within [0, top]. To nearest even, or
  /// the floor after adding (draws[i] + ½) / 2^16.
  struct ToCodes {
    float pre, base, inverse;
    int32_t offset, top;
    const uint16_t* draws;  ///< null: nearest
  };
  void (*to_codes)(uint8_t* codes, const float* x, int64_t n, const ToCodes&);
  /// out[i] (+)= (codes[i] - offset) · step; the largest code.
  struct OfStep {
    float offset, step;
  };
  int32_t (*of_step)(float* out, const uint8_t* codes, int64_t n, OfStep);
  int32_t (*add_of_step)(float* out, const uint8_t* codes, int64_t n, OfStep);
  /// out[i] (+)= least · (1 - t) + largest · t, t = codes[i] · part.
  struct OfRange {
    float least, largest, part;
  };
  void (*of_range)(float* out, const uint8_t* codes, int64_t n, OfRange);
  void (*add_of_range)(float* out, const uint8_t* codes, int64_t n, OfRange);

  struct Narrow {
    /// factor · x to nearest even, infinity beyond the largest; the bits of x's largest magnitude.
    /// Codes may lie at any byte.
    uint32_t (*to)(void* codes, const float* x, int64_t n, float factor);
    /// Codes of infinities become those of the largest; how many there were.
    int64_t (*saturate)(void* codes, int64_t n);
    /// out[i] (+)= factor · value
    void (*of)(float* out, const void* codes, int64_t n, float factor);
    void (*add)(float* out, const void* codes, int64_t n, float factor);
  };
  Narrow half, bfloat16;

  void (*add)(float* out, const float* x, int64_t n);  ///< out[i] += x[i]
  /// How many codes & 0x7f are 0 where x is not.
  int64_t (*vanished)(const float* x, const uint8_t* codes, int64_t n);
};
LOCKSTEP_DECLARE_LOOPS(Quantize);

}  // namespace lockstep::cpu
