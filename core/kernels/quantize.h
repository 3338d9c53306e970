#pragma once
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/kernels/codec.h"

/// Numbers of few bits, on raw host memory, for the codes of distributed/compress. What is encoded
/// is made, encoded, and what the code loses kept, in one pass: see Note [Codes in one pass] in
/// cpu/one_pass.h. Same bits on every instruction set, whatever the threads. Codes may lie at any
/// byte.
namespace lockstep::kernel {

/// x[i] = values[i] + scale · residual[i]; next[i] = (x[i] - decoded[i]) / scale.
struct FedBack {
  const float* values;
  int64_t numel;
  const float* residual = nullptr;  ///< null: x is values
  float* next = nullptr;            ///< null: not wanted; may be `residual`
  float scale = 1;                  ///< a power of two
};

/// Of x; NaN or infinity where an element is.
float largest_magnitude(const FedBack&);
/// `sum` within 2^-15 of itself, and exact where all magnitudes are one of 16 bits.
struct Magnitudes {
  float largest = 0;
  double sum = 0;
  int64_t zeros = 0;
};
Magnitudes sum_magnitudes(const FedBack&);

/// `value` with `bits` bits of significand, so that multiples of it are exact: to nearest, or not
/// below it. Neither subnormal nor infinite, but for 0.
enum class Shorten : uint8_t { nearest, up };
float shorten(float value, int bits, Shorten);

/// 2^k, the largest with magnitude · 2^k <= most, and in [2^-126, 2^126]; 1 for 0 and what is not
/// finite.
float power_below(float magnitude, float most);

/// For stochastic rounding: element i has 16 bits, the (i % 8)th of block position + i / 8 of
/// Random(seed, stochastic_rounding, key), the lower half of a word first. So ranges of a buffer,
/// each from the position that it begins at, share none.
struct Draws {
  uint64_t seed = 0;
  uint32_t key = 0;
  uint64_t position = 0;
};

/// Codes of `bits` bits, 1 to 8, one after the other from the lowest bit of the first byte on; bits
/// of the last byte that are left are 0.
inline int64_t packed_bytes(int64_t numel, int bits) { return (numel * bits + 7) / 8; }

/// Blocks of elements that have a grid of values of their own.
struct BlockCode {
  enum class Grid : uint8_t {
    absmax,  ///< multiples of a step: k · step, |k| <= 2^(bits-1) - 1, the largest magnitude being
             ///< the last; with one bit ±step
    l2,      ///< the same, the block's Euclidean norm being the last
    minmax,  ///< 2^bits values from the least to the largest, both exact
  };
  int64_t block = 256;  ///< a multiple of 8, at most kMostBlock
  int bits = 8;
  Grid grid = Grid::absmax;

  static constexpr int64_t kMostBlock = 4096;
  int64_t blocks(int64_t numel) const { return (numel + block - 1) / block; }
  /// Steps, or least and largest, of all blocks.
  int64_t scale_bytes(int64_t numel) const {
    return blocks(numel) * (grid == Grid::minmax ? 8 : 4);
  }
};
/// To nearest (ties to even), or, with `draws`, stochastically: unbiased. False where x is not
/// finite; the code is then one of zeros and `next` not to be used.
bool encode_blocks(std::byte* scales, std::byte* codes, const FedBack&, const BlockCode&,
                   const Draws* draws);
/// out[i] += decoded[i]. False where a scale or a code is none that encode_blocks makes.
bool add_blocks(float* out, int64_t numel, const std::byte* scales, const std::byte* codes,
                const BlockCode&);

/// One step for all: k · step, |k| <= most, as k + most. `step` and `inverse` may differ: k is
/// x · inverse, rounded. Otherwise as encode_blocks.
struct StepCode {
  float step = 1, inverse = 1;
  int bits = 2;
  int most = 1;  ///< 2 · most < 2^bits
};
bool encode_steps(std::byte* codes, const FedBack&, const StepCode&, const Draws* draws);
bool add_steps(float* out, int64_t numel, const std::byte* codes, const StepCode&);

/// One bit an element, the sign's: ±magnitude. Zeros go by their sign bit. False where x is not
/// finite.
bool encode_signs(std::byte* codes, const FedBack&, float magnitude);
/// False where bits after the last are not 0.
bool add_signs(float* out, int64_t numel, const std::byte* codes, float magnitude);

/// x · factor in f16 or bf16, to nearest even. What lies beyond the largest (after rounding)
/// becomes the largest and is counted. Not finite where x is not; the code is then one of zeros.
struct Narrowed {
  bool finite = true;
  int64_t beyond = 0;
};
Narrowed encode_narrow(std::byte* codes, DType, const FedBack&, float factor);
/// out[i] += factor · decoded[i].
void add_narrow(float* out, int64_t numel, const std::byte* codes, DType, float factor);

/// x · 2^k in an eight-bit format, to nearest even: the largest 2^k at which nothing is rounded
/// beyond the format's largest, of all elements or of each block of them, as a byte (k + 127).
struct EighthCode {
  Fp8 format = Fp8::e4m3;
  int64_t block = 0;  ///< 0: one power for all; else as of BlockCode
  /// Where there is one power for all, and this is not negative: the largest magnitude that the
  /// power goes by, at least that of the elements.
  float amplitude = -1;
  int64_t powers(int64_t numel) const { return block == 0 ? 1 : (numel + block - 1) / block; }
};
struct Eighths {
  bool finite = true;
  int64_t vanished = 0;  ///< elements that became zero and were not
};
Eighths encode_eighths(std::byte* powers, std::byte* codes, const FedBack&, const EighthCode&);
/// out[i] += decoded[i]. False where a power or a code is none that encode_eighths makes.
bool add_eighths(float* out, int64_t numel, const std::byte* powers, const std::byte* codes,
                 const EighthCode&);

}  // namespace lockstep::kernel
