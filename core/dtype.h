#pragma once
#include <bit>
#include <cstdint>
#include <string_view>

namespace lockstep {

/// Element types of tensors. fp8 is a wire code of the compressors, not one of these.
enum class DType : uint8_t { f32, f16, bf16, i64, i32, u8 };

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType t) {
  constexpr std::string_view names[] = {"f32", "f16", "bf16", "i64", "i32", "u8"};
  return names[static_cast<int>(t)];
}

constexpr bool is_floating(DType t) {
  return t == DType::f32 || t == DType::f16 || t == DType::bf16;
}

/// What two floating dtypes meet in: the one they share, else f32, which holds every value of both.
constexpr DType promote(DType a, DType b) { return a == b ? a : DType::f32; }

/// bfloat16 bits of a float: round to nearest even; a NaN stays a (quiet) NaN.
constexpr uint16_t bfloat16_bits(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

constexpr float bfloat16_value(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

/// IEEE binary16 bits of a float: round to nearest even, subnormals kept, overflow to infinity.
constexpr uint16_t half_bits(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u)  // NaN: keep the top payload bits, force quiet
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 2^16 and above
  if (magnitude >= 0x38800000u) {                                              // normal in binary16
    const uint32_t rebiased = magnitude - 0x38000000u;
    return static_cast<uint16_t>(sign | ((rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13));
  }
  if (magnitude < 0x33000000u)
    return static_cast<uint16_t>(sign);                       // below half the least subnormal
  const int shift = 126 - static_cast<int>(magnitude >> 23);  // 14..24
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t kept = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1u), tie = 1u << (shift - 1);
  return static_cast<uint16_t>(sign | (kept + (rest > tie || (rest == tie && (kept & 1u)))));
}

/// Exact; a NaN comes out quiet, as processors convert it.
constexpr float half_value(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
  if (exponent == 31)
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa ? 0x400000u : 0u) |
                                (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

/// Two-byte storage types; arithmetic is done in float.
struct half {
  uint16_t bits = 0;
  half() = default;
  constexpr explicit half(float f) : bits(half_bits(f)) {}
  constexpr operator float() const { return half_value(bits); }
};
struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  constexpr explicit bfloat16(float f) : bits(bfloat16_bits(f)) {}
  constexpr operator float() const { return bfloat16_value(bits); }
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<half> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<bfloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace lockstep
