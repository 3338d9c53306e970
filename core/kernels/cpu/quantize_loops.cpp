#include "core/kernels/cpu/quantize_loops.h"

#include "core/kernels/cpu/half_vec.h"
#include "core/kernels/cpu/philox_vec.h"
#include "core/kernels/cpu/tile_vec.h"

namespace lockstep::cpu {
namespace {

typedef uint8_t ByteVec __attribute__((vector_size(kWidth)));
typedef uint8_t UnalignedByteVec __attribute__((vector_size(kWidth), aligned(1), may_alias));

inline ByteVec load_bytes(const uint8_t* p) {
  return *reinterpret_cast<const UnalignedByteVec*>(p);
}
inline void store_bytes(uint8_t* p, ByteVec v) { *reinterpret_cast<UnalignedByteVec*>(p) = v; }
inline void copy(void* to, const void* from, int64_t n) {
  __builtin_memcpy(to, from, static_cast<unsigned long>(n));
}
inline ByteVec load_bytes_n(const uint8_t* p, int64_t n) {
  ByteVec v{};
  copy(&v, p, n);
  return v;
}
typedef uint16_t AnyShortVec __attribute__((vector_size(2 * kWidth), aligned(1), may_alias));
inline ShortVec load_shorts(const void* p) { return *static_cast<const AnyShortVec*>(p); }
inline void store_shorts(void* p, ShortVec v) { *static_cast<AnyShortVec*>(p) = v; }
inline IntVec widen_bytes(ByteVec v) {
#if defined(LOCKSTEP_ISA_Avx512)
  return reinterpret_cast<IntVec>(_mm512_maskz_cvtepu8_epi32(0xffff, reinterpret_cast<__m128i>(v)));
#elif defined(LOCKSTEP_ISA_Avx2)
  return reinterpret_cast<IntVec>(
      _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(reinterpret_cast<int64_t>(v))));
#elif defined(__x86_64__)
  const __m128i zero = _mm_setzero_si128();
  return reinterpret_cast<IntVec>(_mm_unpacklo_epi16(
      _mm_unpacklo_epi8(_mm_cvtsi32_si128(reinterpret_cast<int32_t>(v)), zero), zero));
#else
  return __builtin_convertvector(v, IntVec);
#endif
}
// Of integers from 0 to 255.
inline ByteVec narrow_bytes(IntVec v) {
#if defined(LOCKSTEP_ISA_Avx2)
  const __m256i wide = reinterpret_cast<__m256i>(v);
  const __m128i half =
      _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  return reinterpret_cast<ByteVec>(_mm_cvtsi128_si64(_mm_packus_epi16(half, half)));
#elif defined(__x86_64__) && !defined(LOCKSTEP_ISA_Avx512)
  const __m128i half = _mm_packs_epi32(reinterpret_cast<__m128i>(v), reinterpret_cast<__m128i>(v));
  return reinterpret_cast<ByteVec>(_mm_cvtsi128_si32(_mm_packus_epi16(half, half)));
#else
  return __builtin_convertvector(v, ByteVec);
#endif
}
inline IntVec widen_shorts(ShortVec v) {
#if defined(LOCKSTEP_ISA_Avx512)
  return reinterpret_cast<IntVec>(
      _mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(v)));
#else
  return __builtin_convertvector(v, IntVec);
#endif
}

inline IntVec larger(IntVec a, IntVec b) {
#if defined(LOCKSTEP_ISA_Avx512)
  return reinterpret_cast<IntVec>(
      _mm512_maskz_max_epi32(0xffff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(LOCKSTEP_ISA_Avx2)
  return reinterpret_cast<IntVec>(
      _mm256_max_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return a > b ? a : b;
#endif
}
inline IntVec smaller(IntVec a, IntVec b) {
#if defined(LOCKSTEP_ISA_Avx512)
  return reinterpret_cast<IntVec>(
      _mm512_maskz_min_epi32(0xffff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(LOCKSTEP_ISA_Avx2)
  return reinterpret_cast<IntVec>(
      _mm256_min_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return a < b ? a : b;
#endif
}
inline int32_t reduce_larger(IntVec v) {
#if defined(LOCKSTEP_ISA_Avx512)
  v = larger(v,
             __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3));
  v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1));
  return v[0] > v[1] ? v[0] : v[1];
#elif defined(LOCKSTEP_ISA_Avx2)
  v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
  v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 2, 3, 0, 1));
  return v[0] > v[1] ? v[0] : v[1];
#else
  v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1));
  return v[0] > v[1] ? v[0] : v[1];
#endif
}
inline IntVec magnitude_bits(Vec x) { return reinterpret_cast<IntVec>(x) & set_int(0x7fffffff); }

// f(at, loads, stores…) as whole vectors, then once more for what is left.
template <class Whole, class Rest>
[[gnu::always_inline]] inline void vectors(int64_t n, Whole whole, Rest rest) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) whole(i);
  if (i < n) rest(i, n - i);
}

uint32_t add_residual(float* x, const float* values, const float* residual, float scale,
                      int64_t n) {
  IntVec most[2] = {};
  const auto sum = [&](Vec v, Vec r, int which) {
    const Vec s = v + set(scale) * r;
    most[which] = larger(most[which], magnitude_bits(s));
    return s;
  };
  int64_t i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const int64_t at = i + j * kWidth;
      store(x + at, sum(load(values + at), load(residual + at), j));
    }
  for (; i < n; i += kWidth) {
    const int64_t rest = n - i;
    const Vec s = sum(load_up_to(values + i, rest), load_up_to(residual + i, rest), 0);
    rest < kWidth ? store_n(x + i, s, rest) : store(x + i, s);
  }
  return static_cast<uint32_t>(reduce_larger(larger(most[0], most[1])));
}

uint32_t largest(const float* x, int64_t n) {
  IntVec most[4] = {};
  int64_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) most[j] = larger(most[j], magnitude_bits(load(x + i + j * kWidth)));
  for (; i + kWidth <= n; i += kWidth) most[0] = larger(most[0], magnitude_bits(load(x + i)));
  if (i < n) most[1] = larger(most[1], magnitude_bits(load_n(x + i, n - i)));
  return static_cast<uint32_t>(
      reduce_larger(larger(larger(most[0], most[1]), larger(most[2], most[3]))));
}

void keep(float* next, const float* x, const float* decoded, float factor, int64_t n) {
  const auto rest_of = [&](Vec a, Vec b) { return (a - b) * set(factor); };
  vectors(
      n, [&](int64_t i) { store(next + i, rest_of(load(x + i), load(decoded + i))); },
      [&](int64_t i, int64_t rest) {
        store_n(next + i, rest_of(load_n(x + i, rest), load_n(decoded + i, rest)), rest);
      });
}

// Sixteen sums each, whatever the width, folded in one order: the same bits on every set.
constexpr int kSums = 16, kSumVecs = kSums / kWidth;
inline double fold_sums(const Vec* sums) {
  double sum = 0;
  for (int j = 0; j < kSumVecs; ++j)
    for (int lane = 0; lane < kWidth; ++lane) sum += sums[j][lane];
  return sum;
}
QuantizeLoops::Sums sums(const float* x, float factor, int64_t n) {
  Vec magnitudes[kSumVecs] = {}, squares[kSumVecs] = {};
  IntVec zeros{};  // minus their number
  const auto add = [&](int j, Vec v) {
    const Vec scaled = v * set(factor);
    magnitudes[j] = magnitudes[j] + abs(scaled);
    squares[j] = squares[j] + scaled * scaled;
    zeros += v == Vec{};
  };
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
#pragma GCC unroll 4
    for (int j = 0; j < kSumVecs; ++j) add(j, load(x + i + j * kWidth));
  int64_t beyond = 0;  // lanes that are no elements
  for (int j = 0; j < kSumVecs && i < n; ++j, i += kWidth) {
    if (i + kWidth <= n) {
      add(j, load(x + i));
    } else {
      beyond = i + kWidth - n;
      add(j, load_n(x + i, n - i));
    }
  }
  int64_t count = -beyond;
  for (int lane = 0; lane < kWidth; ++lane) count -= zeros[lane];
  return {fold_sums(magnitudes), fold_sums(squares), count};
}

QuantizeLoops::Range range(const float* x, int64_t n) {
  Vec low = set(__builtin_inff()), high = set(-__builtin_inff());
  vectors(
      n,
      [&](int64_t i) {
        const Vec v = load(x + i);
        low = min(v, low);
        high = max(v, high);
      },
      [&](int64_t i, int64_t rest) {
        low = min(keep_n(load_n(x + i, rest), rest, low), low);
        high = max(keep_n(load_n(x + i, rest), rest, high), high);
      });
  float least = low[0], most = high[0];
  for (int lane = 1; lane < kWidth; ++lane) {
    least = low[lane] < least ? low[lane] : least;
    most = high[lane] > most ? high[lane] : most;
  }
  return {least + 0.0f, most + 0.0f};  // zeros of one sign, whichever came first
}

// Philox with a word to a lane of 64 bits, of which only the lower half counts: products come out
// where they are wanted. Several vectors of blocks side by side hide what multiplying takes.
constexpr int kBlocks = kWidth / 2;
inline LongVec upper_to_lower(LongVec v) {
#if defined(LOCKSTEP_ISA_Avx512)
  return reinterpret_cast<LongVec>(
      _mm512_maskz_shuffle_epi32(0xffff, reinterpret_cast<__m512i>(v), _MM_PERM_DDBB));
#else
  return v >> 32;
#endif
}
inline LongVec times(LongVec a, uint32_t m) {
  return multiply_even(reinterpret_cast<WordVec>(a), m);
}
inline LongVec zip_longs_low(LongVec a, LongVec b) {
#if defined(LOCKSTEP_ISA_Avx512)
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#elif defined(LOCKSTEP_ISA_Avx2)
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#else
  return __builtin_shufflevector(a, b, 0, 2);
#endif
}
inline LongVec zip_longs_high(LongVec a, LongVec b) {
#if defined(LOCKSTEP_ISA_Avx512)
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#elif defined(LOCKSTEP_ISA_Avx2)
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#else
  return __builtin_shufflevector(a, b, 1, 3);
#endif
}
// The words of kSideBySide · kBlocks blocks from `first` on, in order.
template <int kSideBySide>
inline void words_of(uint16_t* out, PhiloxKey key, uint64_t first) {
  LongVec c0[kSideBySide], c1[kSideBySide], c2[kSideBySide], c3[kSideBySide];
#pragma GCC unroll 4
  for (int v = 0; v < kSideBySide; ++v) {
    LongVec block = first + static_cast<uint64_t>(v * kBlocks) - LongVec{};
    for (int lane = 0; lane < kBlocks; ++lane) block[lane] += static_cast<uint64_t>(lane);
    c0[v] = block;
    c1[v] = block >> 32;
    c2[v] = uint64_t{key.key} - LongVec{};
    c3[v] = uint64_t{key.stream} - LongVec{};
  }
  uint32_t k0 = key.seed0, k1 = key.seed1;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const LongVec key0 = uint64_t{k0} - LongVec{}, key1 = uint64_t{k1} - LongVec{};
#pragma GCC unroll 4
    for (int v = 0; v < kSideBySide; ++v) {
      const LongVec p0 = times(c0[v], 0xD2511F53u), p1 = times(c2[v], 0xCD9E8D57u);
      c0[v] = upper_to_lower(p1) ^ c1[v] ^ key0;
      c1[v] = p1;
      c2[v] = upper_to_lower(p0) ^ c3[v] ^ key1;
      c3[v] = p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
#pragma GCC unroll 4
  for (int v = 0; v < kSideBySide; ++v) {
    const LongVec lower = (c0[v] & 0xffffffffu) | (c1[v] << 32),
                  upper = (c2[v] & 0xffffffffu) | (c3[v] << 32);
    const LongVec both[] = {zip_longs_low(lower, upper), zip_longs_high(lower, upper)};
    copy(out + v * 8 * kBlocks, both, sizeof both);
  }
}
void halves(uint16_t* out, int64_t n, PhiloxKey key, uint64_t block) {
  constexpr int64_t kSome = 8 * kBlocks, kMany = 4 * kSome;
  int64_t i = 0;
  for (; i + kMany <= n; i += kMany, block += 4 * kBlocks) words_of<4>(out + i, key, block);
  for (; i + kSome <= n; i += kSome, block += kBlocks) words_of<1>(out + i, key, block);
  if (i == n) return;
  alignas(64) uint16_t room[kSome];
  words_of<1>(room, key, block);
  copy(out + i, room, 2 * (n - i));
}

// Adding 1.5 · 2^23 rounds to an integer, which the lower bits then are.
inline Vec magic() { return set(12582912.0f); }
template <bool kStochastic>
inline ByteVec code_of(Vec x, ShortVec draw, const QuantizeLoops::ToCodes& how) {
  const Vec y = (set(how.pre) * x - set(how.base)) * set(how.inverse);
  IntVec k;
  if constexpr (kStochastic) {
    const Vec z =
        y + (__builtin_convertvector(widen_shorts(draw), Vec) + set(0.5f)) * set(0x1p-16f);
    const Vec rounded = z + magic();
    k = reinterpret_cast<IntVec>(rounded) - reinterpret_cast<IntVec>(magic());
    k += (rounded - magic()) > z;  // minus 1: the floor
  } else {
    k = reinterpret_cast<IntVec>(y + magic()) - reinterpret_cast<IntVec>(magic());
  }
  return narrow_bytes(smaller(larger(k + set_int(how.offset), IntVec{}), set_int(how.top)));
}
template <bool kStochastic>
void to_codes_as(uint8_t* codes, const float* x, int64_t n, const QuantizeLoops::ToCodes& how) {
  ShortVec draw{};
  vectors(
      n,
      [&](int64_t i) {
        if constexpr (kStochastic) draw = load_short(how.draws + i);
        store_bytes(codes + i, code_of<kStochastic>(load(x + i), draw, how));
      },
      [&](int64_t i, int64_t rest) {
        if constexpr (kStochastic) draw = load_short_n(how.draws + i, rest);
        const ByteVec made = code_of<kStochastic>(load_n(x + i, rest), draw, how);
        copy(codes + i, &made, rest);
      });
}
void to_codes(uint8_t* codes, const float* x, int64_t n, const QuantizeLoops::ToCodes& how) {
  if (how.draws == nullptr) return to_codes_as<false>(codes, x, n, how);
  to_codes_as<true>(codes, x, n, how);
}

// out[i] (+)= value(codes[i]…)
template <bool kAdd, class Value>
[[gnu::always_inline]] inline void decode(float* out, const uint8_t* codes, int64_t n,
                                          Value value) {
  vectors(
      n,
      [&](int64_t i) {
        const Vec v = value(widen_bytes(load_bytes(codes + i)));
        store(out + i, kAdd ? load(out + i) + v : v);
      },
      [&](int64_t i, int64_t rest) {
        const Vec v = value(widen_bytes(load_bytes_n(codes + i, rest)));
        store_n(out + i, kAdd ? load_n(out + i, rest) + v : v, rest);
      });
}
template <bool kAdd>
int32_t of_step(float* out, const uint8_t* codes, int64_t n, QuantizeLoops::OfStep how) {
  IntVec most{};
  decode<kAdd>(out, codes, n, [&](IntVec k) {
    most = larger(most, k);
    return (__builtin_convertvector(k, Vec) - set(how.offset)) * set(how.step);
  });
  return reduce_larger(most);
}
template <bool kAdd>
void of_range(float* out, const uint8_t* codes, int64_t n, QuantizeLoops::OfRange how) {
  decode<kAdd>(out, codes, n, [&](IntVec k) {
    const Vec t = __builtin_convertvector(k, Vec) * set(how.part);
    return set(how.least) * (set(1.0f) - t) + set(how.largest) * t;
  });
}

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
constexpr int64_t kCodes = 8 * kBlocks;
template <int kBits>
constexpr int64_t kAhead = 8 * (8 / kBits);
// Of AVX-512 the instructions for halves and quarters touch nothing else.
template <int kBits>
constexpr int64_t kWholeCodes = kCodes +
                                (kWidth == 16 && (kBits == 4 || kBits == 2) ? 0 : kAhead<kBits>);
// kBlocks words from `packed` on, kBits bytes apart, and back.
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
  for (int lane = 0; lane < kBlocks; ++lane) {
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
  for (int lane = 0; lane < kBlocks; ++lane) {
    const uint64_t word = words[lane];
    copy(packed + lane * kBits, &word, 8);
  }
}
template <int kBits>
void pack_as(uint8_t* packed, const uint8_t* codes, int64_t n) {
  int64_t i = 0;
  for (; i + kWholeCodes<kBits> <= n; i += kCodes, packed += kBlocks * kBits) {
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
  for (; i + kWholeCodes<kBits> <= n; i += kCodes, packed += kBlocks * kBits) {
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

template <class Code>
uint32_t narrow(void* codes, const float* x, int64_t n, float factor) {
  char* to = static_cast<char*>(codes);
  IntVec most[2] = {};
  const auto scaled = [&](Vec v, int which) {
    most[which] = larger(most[which], magnitude_bits(v));
    return v * set(factor);
  };
  int64_t i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const int64_t at = i + j * kWidth;
      store_shorts(to + 2 * at, Code::narrow(scaled(load(x + at), j)));
    }
  for (; i < n; i += kWidth) {
    const int64_t rest = n - i < kWidth ? n - i : kWidth;
    const ShortVec h = Code::narrow(scaled(load_up_to(x + i, rest), 0));
    copy(to + 2 * i, &h, 2 * rest);
  }
  return static_cast<uint32_t>(reduce_larger(larger(most[0], most[1])));
}
// The code of the largest is one less than that of infinity.
template <uint16_t kInfinity>
int64_t saturate(void* codes, int64_t n) {
  char* at = static_cast<char*>(codes);
  int64_t beyond = 0;
  for (int64_t i = 0; i < n; ++i, at += 2) {
    uint16_t h;
    copy(&h, at, 2);
    if ((h & 0x7fff) != kInfinity) continue;
    --h;
    copy(at, &h, 2);
    ++beyond;
  }
  return beyond;
}
template <class Code, bool kAdd>
void widen(float* out, const void* codes, int64_t n, float factor) {
  const char* from = static_cast<const char*>(codes);
  vectors(
      n,
      [&](int64_t i) {
        const Vec v = Code::widen(load_shorts(from + 2 * i)) * set(factor);
        store(out + i, kAdd ? load(out + i) + v : v);
      },
      [&](int64_t i, int64_t rest) {
        ShortVec h{};
        copy(&h, from + 2 * i, 2 * rest);
        const Vec v = Code::widen(h) * set(factor);
        store_n(out + i, kAdd ? load_n(out + i, rest) + v : v, rest);
      });
}

void add(float* out, const float* x, int64_t n) {
  vectors(
      n, [&](int64_t i) { store(out + i, load(out + i) + load(x + i)); },
      [&](int64_t i, int64_t rest) {
        store_n(out + i, load_n(out + i, rest) + load_n(x + i, rest), rest);
      });
}
int64_t vanished(const float* x, const uint8_t* codes, int64_t n) {
  IntVec found{};  // minus their number
  vectors(
      n,
      [&](int64_t i) {
        found += ((widen_bytes(load_bytes(codes + i)) & 0x7f) == 0) & (load(x + i) != Vec{});
      },
      [&](int64_t i, int64_t rest) {
        found += ((widen_bytes(load_bytes_n(codes + i, rest)) & 0x7f) == 0) &
                 (load_n(x + i, rest) != Vec{});
      });
  int64_t total = 0;
  for (int lane = 0; lane < kWidth; ++lane) total -= found[lane];
  return total;
}

}  // namespace

const QuantizeLoops LOCKSTEP_LOOPS_TABLE(Quantize) = {
    add_residual,
    largest,
    keep,
    sums,
    range,
    halves,
    to_codes,
    of_step<false>,
    of_step<true>,
    of_range<false>,
    of_range<true>,
    pack,
    unpack,
    pack_signs,
    of_signs<false>,
    of_signs<true>,
    {narrow<Half>, saturate<0x7c00>, widen<Half, false>, widen<Half, true>},
    {narrow<Bfloat16>, saturate<0x7f80>, widen<Bfloat16, false>, widen<Bfloat16, true>},
    add,
    vanished,
};

}  // namespace lockstep::cpu
