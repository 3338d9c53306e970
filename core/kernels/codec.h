#pragma once
#include "core/dispatch.h"
#include "core/random.h"

/// Eight-bit floating codes (Micikevicius et al. 2022, arXiv:2209.05433), in u8 tensors.
namespace lockstep::kernel {

/// e4m3: largest 448, no infinities, one NaN per sign. e5m2: largest 57344, IEEE's specials.
enum class Fp8 : uint8_t { e4m3, e5m2 };
/// What becomes of values beyond the largest, infinities included. `saturate`: the largest, with
/// their sign. `special`: NaN in e4m3, infinity in e5m2. NaN stays NaN.
enum class Fp8Overflow : uint8_t { saturate, special };

struct Fp8Encoding {
  Fp8 format = Fp8::e4m3;
  Fp8Overflow overflow = Fp8Overflow::saturate;
  float scale = 1;  ///< x · scale is encoded; a power of two keeps that exact
  /// Null: nearest, ties to even. Else up with a probability equal to the distance from the lower
  /// neighbour: element i uses the word at `position` + i.
  const Random* stochastic = nullptr;
  uint64_t position = 0;
};

/// codes[i] = code of x[i] · scale; x floating, codes u8, as many elements.
inline constinit Kernel<void(const Tensor& codes, const Tensor& x, const Fp8Encoding&)> encode_fp8{
    "encode_fp8"};
/// out[i] = factor · value of codes[i]; out floating.
inline constinit Kernel<void(const Tensor& out, const Tensor& codes, Fp8, float factor)> decode_fp8{
    "decode_fp8"};

}  // namespace lockstep::kernel
