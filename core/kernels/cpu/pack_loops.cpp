#include "core/kernels/cpu/pack_loops.h"

#include "core/kernels/cpu/bytes_vec.h"
#include "core/kernels/cpu/tile_vec.h"

namespace lockstep::cpu {
namespace {

typedef uint64_t LongVec __attribute__((vector_size(4 * kWidth)));
constexpr int kLongs = kWidth / 2;

// Eight codes in the bytes of a word, or of each of a vector; neighbours are joined until they lie
// in its lowest bits.
template <int kBits, class Word>
inline Word join_codes(Word w) {
  constexpr uint64_t kOne = 0x00ff00ff00ff00ff, kTwo = 0x0000ffff0000ffff, kFour = 0xffffffff;
  w = (w & kOne) | ((w >> (8 - kBits)) & (kOne << kBits));
  w = (w & kTwo) | ((w >> (16 - 2 * kBits)) & (kTwo << 2 * kBits));
  return (w & kFour) | ((w >> (32 - 4 * kBits)) & (kFour << 4 * kBits));
}
constexpr uint64_t low_bits(int bits) { return (uint64_t{1} << bits) - 1; }
template <int kBits, class Word>
inline Word part_codes(Word w) {
  constexpr uint64_t kFour = low_bits(4 * kBits), kTwo = low_bits(2 * kBits) * 0x100000001,
                     kOne = low_bits(kBits) * 0x0001000100010001;
  w = (w & kFour) | ((w & (kFour << 4 * kBits)) << (32 - 4 * kBits));
  w = (w & kTwo) | ((w & (kTwo << 2 * kBits)) << (16 - 2 * kBits));
  return (w & kOne) | ((w & (kOne << kBits)) << (8 - kBits));
}
// Words of eight codes are read and written whole, their upper bytes again with the next, as long
// as at least eight packed bytes are left.
constexpr int64_t kCodes = 8 * kLongs;
template <int kBits>
constexpr int64_t kAhead = 8 * (8 / kBits);
// Of AVX-512 the instructions for halves and quarters touch nothing else.
template <int kBits>
constexpr int64_t kWholeCodes = kCodes +
                                (kWidth == 16 && (kBits == 4 || kBits == 2) ? 0 : kAhead<kBits>);
// kLongs words from `packed` on, kBits bytes apart, and back.
template <int kBits>
inline LongVec spread_words(const uint8_t* packed) {
#if defined(LOCKSTEP_ISA_Avx512)
  if constexpr (kBits == 4) {
    __m256i half;
    copy(&half, packed, sizeof half);
    return reinterpret_cast<LongVec>(_mm512_maskz_cvtepu32_epi64(0xff, half));
  }
  if constexpr (kBits == 2) {
    __m128i quarter;
    copy(&quarter, packed, sizeof quarter);
    return reinterpret_cast<LongVec>(_mm512_maskz_cvtepu16_epi64(0xff, quarter));
  }
#endif
  LongVec words;
#pragma GCC unroll 8
  for (int lane = 0; lane < kLongs; ++lane) {
    uint64_t word;
    copy(&word, packed + lane * kBits, 8);
    words[lane] = word;
  }
  return words;
}
template <int kBits>
inline void join_words(uint8_t* packed, LongVec words) {
#if defined(LOCKSTEP_ISA_Avx512)
  if constexpr (kBits == 4) {
    const __m256i half = _mm512_maskz_cvtepi64_epi32(0xff, reinterpret_cast<__m512i>(words));
    return copy(packed, &half, sizeof half);
  }
  if constexpr (kBits == 2) {
    const __m128i quarter = _mm512_maskz_cvtepi64_epi16(0xff, reinterpret_cast<__m512i>(words));
    return copy(packed, &quarter, sizeof quarter);
  }
#endif
#pragma GCC unroll 8
  for (int lane = 0; lane < kLongs; ++lane) {
    const uint64_t word = words[lane];
    copy(packed + lane * kBits, &word, 8);
  }
}
template <int kBits>
void pack_as(uint8_t* packed, const uint8_t* codes, int64_t n) {
  int64_t i = 0;
  for (; i + kWholeCodes<kBits> <= n; i += kCodes, packed += kLongs * kBits) {
    LongVec words;
    copy(&words, codes + i, sizeof words);
    join_words<kBits>(packed, join_codes<kBits>(words));
  }
  uint64_t word = 0;
  for (; i + 8 <= n; i += 8, packed += kBits) {
    copy(&word, codes + i, 8);
    word = join_codes<kBits>(word);
    copy(packed, &word, kBits);
  }
  if (i == n) return;
  word = 0;
  copy(&word, codes + i, n - i);
  word = join_codes<kBits>(word);
  copy(packed, &word, ((n - i) * kBits + 7) / 8);
}
template <int kBits>
inline uint64_t eight_codes(const uint8_t* packed, int64_t bytes) {
  uint64_t word = 0;
  copy(&word, packed, bytes);
  return part_codes<kBits>(word);
}
template <int kBits>
void unpack_as(uint8_t* codes, const uint8_t* packed, int64_t n) {
  int64_t i = 0;
  for (; i + kWholeCodes<kBits> <= n; i += kCodes, packed += kLongs * kBits) {
    const LongVec words = part_codes<kBits>(spread_words<kBits>(packed));
    copy(codes + i, &words, sizeof words);
  }
  for (; i + 8 <= n; i += 8, packed += kBits) {
    const uint64_t word = n - i >= 8 + kAhead<kBits> ? eight_codes<kBits>(packed, 8)
                                                     : eight_codes<kBits>(packed, kBits);
    copy(codes + i, &word, 8);
  }
  if (i == n) return;
  const uint64_t word = eight_codes<kBits>(packed, ((n - i) * kBits + 7) / 8);
  copy(codes + i, &word, n - i);
}
void pack(uint8_t* packed, const uint8_t* codes, int64_t n, int bits) {
  using Pack = void (*)(uint8_t*, const uint8_t*, int64_t);
  constexpr Pack by_bits[] = {pack_as<1>, pack_as<2>, pack_as<3>, pack_as<4>,
                              pack_as<5>, pack_as<6>, pack_as<7>};
  by_bits[bits - 1](packed, codes, n);
}
void unpack(uint8_t* codes, const uint8_t* packed, int64_t n, int bits) {
  using Unpack = void (*)(uint8_t*, const uint8_t*, int64_t);
  constexpr Unpack by_bits[] = {unpack_as<1>, unpack_as<2>, unpack_as<3>, unpack_as<4>,
                                unpack_as<5>, unpack_as<6>, unpack_as<7>};
  by_bits[bits - 1](codes, packed, n);
}

inline uint32_t sign_bits(Vec v) {
#if defined(LOCKSTEP_ISA_Avx512)
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(v));
#elif defined(LOCKSTEP_ISA_Avx2)
  return static_cast<uint32_t>(_mm256_movemask_ps(v));
#elif defined(__x86_64__)
  return static_cast<uint32_t>(_mm_movemask_ps(v));
#else
  uint32_t bits = 0;
  for (int lane = 0; lane < kWidth; ++lane)
    bits |= (reinterpret_cast<WordVec>(v)[lane] >> 31) << lane;
  return bits;
#endif
}
constexpr int64_t kSigned = 16;  // elements at a time: two bytes
void pack_signs(uint8_t* packed, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + kSigned <= n; i += kSigned) {
    uint32_t bits = 0;
#pragma GCC unroll 4
    for (int j = 0; j < kSigned; j += kWidth) bits |= sign_bits(load(x + i + j)) << j;
    const uint16_t two = static_cast<uint16_t>(bits);
    copy(packed + i / 8, &two, 2);
  }
  if (i == n) return;
  uint32_t bits = 0;
  for (int64_t j = 0; i + j < n; j += kWidth)
    bits |= sign_bits(load_up_to(x + i + j, n - i - j)) << j;
  copy(packed + i / 8, &bits, (n - i + 7) / 8);
}
template <bool kAdd>
void of_signs(float* out, const uint8_t* packed, int64_t n, float magnitude) {
  IntVec place[kSigned / kWidth];
  for (int lane = 0; lane < kSigned; ++lane) place[lane / kWidth][lane % kWidth] = 1 << lane;
  const auto values = [&](uint32_t bits, int j) {
    const IntVec minus = (set_int(static_cast<int32_t>(bits)) & place[j]) != 0;
    return reinterpret_cast<Vec>(reinterpret_cast<IntVec>(set(magnitude)) ^
                                 (minus & set_int(INT32_MIN)));
  };
  int64_t i = 0;
  for (; i + kSigned <= n; i += kSigned) {
    uint16_t bits;
    copy(&bits, packed + i / 8, 2);
#pragma GCC unroll 4
    for (int j = 0; j < kSigned / kWidth; ++j) {
      float* to = out + i + j * kWidth;
      const Vec v = values(bits, j);
      store(to, kAdd ? load(to) + v : v);
    }
  }
  if (i == n) return;
  uint16_t bits = 0;
  copy(&bits, packed + i / 8, (n - i + 7) / 8);
  for (int j = 0; i < n; ++j, i += kWidth) {
    const Vec v = values(bits, j);
    if (i + kWidth <= n)
      store(out + i, kAdd ? load(out + i) + v : v);
    else
      store_n(out + i, kAdd ? load_n(out + i, n - i) + v : v, n - i);
  }
}

}  // namespace

const PackLoops LOCKSTEP_LOOPS_TABLE(Pack) = {pack, unpack, pack_signs, of_signs<false>,
                                              of_signs<true>};

}  // namespace lockstep::cpu
