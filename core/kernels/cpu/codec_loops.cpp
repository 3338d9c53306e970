#include "core/kernels/cpu/codec_loops.h"

#include "core/kernels/cpu/half_vec.h"

namespace lockstep::cpu {
namespace {

typedef uint8_t ByteVec __attribute__((vector_size(kWidth)));

// A code is sign, exponent and kMantissa bits; the least normal number is 2^kLeast.
struct E4m3 {
  static constexpr int kMantissa = 3, kLeast = -6, kLargest = 0x7e;
};
struct E5m2 {
  static constexpr int kMantissa = 2, kLeast = -14, kLargest = 0x7b;
};

constexpr uint32_t bits_of_power(int n) { return static_cast<uint32_t>(n + 127) << 23; }
inline Vec power(int n) { return reinterpret_cast<Vec>(bits_of_power(n) - WordVec{}); }

// Codes of magnitudes, to nearest even. Of normal ones the bits are rounded as an integer; below
// kLeast, adding a number whose last place is that of the subnormals rounds there.
template <class Format>
inline IntVec nearest(WordVec magnitude) {
  constexpr int kShift = 23 - Format::kMantissa;
  constexpr int kBias = (127 + Format::kLeast - 1) << Format::kMantissa;
  const WordVec odd = (magnitude >> kShift) & 1u;
  const WordVec normal = (magnitude + ((1u << (kShift - 1)) - 1u) + odd) >> kShift;
  const Vec magic = power(Format::kLeast + kShift);
  const IntVec subnormal = reinterpret_cast<IntVec>(reinterpret_cast<Vec>(magnitude) + magic) -
                           reinterpret_cast<IntVec>(magic);
  return reinterpret_cast<IntVec>(magnitude) <
                 static_cast<int32_t>(bits_of_power(Format::kLeast)) + IntVec{}
             ? subnormal
             : reinterpret_cast<IntVec>(normal) - kBias;
}

// Up as often as the distance from the lower neighbour says. Of normal numbers the bits that are
// cut off are that distance: adding as many random bits carries just as often. Of subnormal ones
// the distance is compared with 31 random bits, and so cut to 2^-31 of a step.
template <class Format>
inline IntVec stochastic(WordVec magnitude, WordVec word) {
  constexpr int kShift = 23 - Format::kMantissa;
  constexpr int kBias = (127 + Format::kLeast - 1) << Format::kMantissa;
  const WordVec normal = (magnitude + (word >> (32 - kShift))) >> kShift;
  // In units of the least subnormal: below 2^kMantissa.
  const Vec least = power(Format::kLeast);
  const Vec units =
      min(reinterpret_cast<Vec>(magnitude), least) * power(Format::kMantissa - Format::kLeast);
  const IntVec lower = __builtin_convertvector(units, IntVec);
  const Vec rest = (units - __builtin_convertvector(lower, Vec)) * set(0x1p31f);
  const IntVec distance = __builtin_convertvector(rest, IntVec);
  const IntVec up = reinterpret_cast<IntVec>(word >> 1) < distance;
  return reinterpret_cast<IntVec>(magnitude) <
                 static_cast<int32_t>(bits_of_power(Format::kLeast)) + IntVec{}
             ? lower - up
             : reinterpret_cast<IntVec>(normal) - kBias;
}

template <class Format, bool kStochastic>
inline ByteVec code_of(Vec x, WordVec word, int32_t beyond) {
  const WordVec bits = reinterpret_cast<WordVec>(x), magnitude = bits & 0x7fffffffu;
  IntVec code;
  if constexpr (kStochastic)
    code = stochastic<Format>(magnitude, word);
  else
    code = nearest<Format>(magnitude);
  code = code > Format::kLargest ? set_int(beyond) : code;
  code = magnitude > 0x7f800000u ? set_int(0x7f) : code;
  return __builtin_convertvector(reinterpret_cast<WordVec>(code) | ((bits >> 24) & 0x80u), ByteVec);
}

// The first n bytes; copies of a whole vector are one instruction only where n is a constant.
inline void copy(void* to, const void* from, int64_t n) {
  __builtin_memcpy(to, from, static_cast<unsigned long>(n));
}

template <class Format, bool kStochastic>
void encode_as(uint8_t* codes, const float* x, int64_t n, const CodecLoops::Encode& how) {
  const auto code = [&](Vec v, WordVec word) {
    return code_of<Format, kStochastic>(v * set(how.scale), word, how.beyond);
  };
  WordVec word{};
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    if constexpr (kStochastic) copy(&word, how.words + i, sizeof word);
    const ByteVec made = code(load(x + i), word);
    copy(codes + i, &made, kWidth);
  }
  if (i == n) return;
  if constexpr (kStochastic) copy(&word, how.words + i, (n - i) * 4);
  const ByteVec made = code(load_n(x + i, n - i), word);
  copy(codes + i, &made, n - i);
}

template <class Format>
void encode(uint8_t* codes, const float* x, int64_t n, const CodecLoops::Encode& how) {
  if (how.words == nullptr) return encode_as<Format, false>(codes, x, n, how);
  encode_as<Format, true>(codes, x, n, how);
}

// Both formats are binary16 with fewer bits: e5m2 by its upper half, e4m3 with an exponent that
// counts from 8 less, so that it comes out 2^8 too small.
inline Vec value_of_e5m2(ShortVec code) { return Half::widen(code << 8); }
inline Vec value_of_e4m3(ShortVec code) {
  const ShortVec magnitude = code & 0x7f;
  const Vec v = Half::widen(((code & 0x80) << 8) | (magnitude << 7)) * set(256.0f);
  const IntVec nan = __builtin_convertvector(magnitude, IntVec) == 0x7f;
  return select(nan, set(__builtin_nanf("")), v);
}

template <class Value>
inline void decode(float* out, const uint8_t* codes, int64_t n, float factor, Value value_of) {
  const auto value = [&](ByteVec code) {
    return value_of(__builtin_convertvector(code, ShortVec)) * set(factor);
  };
  ByteVec code{};
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    copy(&code, codes + i, kWidth);
    store(out + i, value(code));
  }
  if (i == n) return;
  copy(&code, codes + i, n - i);
  store_n(out + i, value(code), n - i);
}
void decode_e4m3(float* out, const uint8_t* codes, int64_t n, float factor) {
  decode(out, codes, n, factor, value_of_e4m3);
}
void decode_e5m2(float* out, const uint8_t* codes, int64_t n, float factor) {
  decode(out, codes, n, factor, value_of_e5m2);
}

}  // namespace

const CodecLoops LOCKSTEP_LOOPS_TABLE(Codec) = {encode<E4m3>, encode<E5m2>, decode_e4m3,
                                                decode_e5m2};

}  // namespace lockstep::cpu
