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
#else
  return __builtin_convertvector(v, IntVec);
#endif
}
inline ByteVec narrow_bytes(IntVec v) { return __builtin_convertvector(v, ByteVec); }

inline IntVec larger(IntVec a, IntVec b) { return a > b ? a : b; }
inline IntVec smaller(IntVec a, IntVec b) { return a < b ? a : b; }
inline int32_t reduce_larger(IntVec v) {
  int32_t most = v[0];
  for (int i = 1; i < kWidth; ++i) most = v[i] > most ? v[i] : most;
  return most;
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
  IntVec most{};
  const auto sum = [&](Vec v, Vec r) {
    const Vec s = v + set(scale) * r;
    most = larger(most, magnitude_bits(s));
    return s;
  };
  vectors(
      n, [&](int64_t i) { store(x + i, sum(load(values + i), load(residual + i))); },
      [&](int64_t i, int64_t rest) {
        store_n(x + i, sum(load_n(values + i, rest), load_n(residual + i, rest)), rest);
      });
  return static_cast<uint32_t>(reduce_larger(most));
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

void halves(uint16_t* out, int64_t n, PhiloxKey key, uint64_t first) {
  constexpr int64_t kAtOnce = 8 * kWidth;
  uint64_t block = first / 8;
  for (int64_t i = -static_cast<int64_t>(first % 8); i < n; i += kAtOnce, block += kWidth) {
    const PhiloxWords words = philox(key, block);
    Vec v[4];
#pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) v[w] = reinterpret_cast<Vec>(words.word[w]);
    const Vec even[] = {zip_low(v[0], v[2]), zip_high(v[0], v[2])},
              odd[] = {zip_low(v[1], v[3]), zip_high(v[1], v[3])};
    const bool whole = i >= 0 && i + kAtOnce <= n;
    alignas(64) uint16_t room[kAtOnce];
    uint16_t* to = whole ? out + i : room;
    for (int half = 0; half < 2; ++half) {
      const Vec low = zip_low(even[half], odd[half]), high = zip_high(even[half], odd[half]);
      copy(to + 4 * half * kWidth, &low, sizeof low);
      copy(to + (4 * half + 2) * kWidth, &high, sizeof high);
    }
    if (whole) continue;
    for (int64_t j = i < 0 ? -i : 0; j < kAtOnce && i + j < n; ++j) out[i + j] = room[j];
  }
}

// Adding 1.5 · 2^23 rounds to an integer, which the lower bits then are.
inline Vec magic() { return set(12582912.0f); }
template <bool kStochastic>
inline ByteVec code_of(Vec x, ShortVec draw, const QuantizeLoops::ToCodes& how) {
  const Vec y = (set(how.pre) * x - set(how.base)) * set(how.inverse);
  IntVec k;
  if constexpr (kStochastic) {
#if defined(LOCKSTEP_ISA_Avx512)
    const IntVec wide = reinterpret_cast<IntVec>(
        _mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(draw)));
#else
    const IntVec wide = __builtin_convertvector(draw, IntVec);
#endif
    const Vec z = y + (__builtin_convertvector(wide, Vec) + set(0.5f)) * set(0x1p-16f);
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

// Eight codes in the bytes of a word; neighbours are joined until they lie in its lowest bits.
template <int kBits>
inline uint64_t join_codes(uint64_t w) {
  w = (w & 0x00ff00ff00ff00ff) | ((w >> (8 - kBits)) & (0x00ff00ff00ff00ff << kBits));
  w = (w & 0x0000ffff0000ffff) | ((w >> (16 - 2 * kBits)) & (0x0000ffff0000ffff << 2 * kBits));
  return (w & 0xffffffff) | ((w >> (32 - 4 * kBits)) & (0xffffffffull << 4 * kBits));
}
constexpr uint64_t low_bits(int bits) { return (uint64_t{1} << bits) - 1; }
template <int kBits>
inline uint64_t part_codes(uint64_t w) {
  constexpr uint64_t kFour = low_bits(4 * kBits), kTwo = low_bits(2 * kBits) * 0x100000001,
                     kOne = low_bits(kBits) * 0x0001000100010001;
  w = (w & kFour) | ((w & (kFour << 4 * kBits)) << (32 - 4 * kBits));
  w = (w & kTwo) | ((w & (kTwo << 2 * kBits)) << (16 - 2 * kBits));
  return (w & kOne) | ((w & (kOne << kBits)) << (8 - kBits));
}
template <int kBits>
void pack_as(uint8_t* packed, const uint8_t* codes, int64_t n) {
  int64_t i = 0;
  uint64_t word = 0;
  // Whole words, whose upper bytes the next ones write again, while they fit.
  for (; i + 8 <= n - 8 * (8 / kBits); i += 8, packed += kBits) {
    copy(&word, codes + i, 8);
    word = join_codes<kBits>(word);
    copy(packed, &word, 8);
  }
  for (; i < n; i += 8, packed += kBits) {
    const int64_t left = n - i < 8 ? n - i : 8;
    word = 0;
    copy(&word, codes + i, left);
    word = join_codes<kBits>(word);
    copy(packed, &word, (left * kBits + 7) / 8);
  }
}
template <int kBits>
void unpack_as(uint8_t* codes, const uint8_t* packed, int64_t n) {
  int64_t i = 0;
  uint64_t word = 0;
  for (; i + 8 <= n - 8 * (8 / kBits); i += 8, packed += kBits) {
    copy(&word, packed, 8);
    word = part_codes<kBits>(word);
    copy(codes + i, &word, 8);
  }
  for (; i < n; i += 8, packed += kBits) {
    const int64_t left = n - i < 8 ? n - i : 8;
    word = 0;
    copy(&word, packed, (left * kBits + 7) / 8);
    word = part_codes<kBits>(word);
    copy(codes + i, &word, left);
  }
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

// What rounds to infinity becomes the largest, whose code is one less.
template <class Code, uint16_t kInfinity>
int64_t narrow(void* codes, const float* x, int64_t n, float factor) {
  ShortVec beyond{};
  char* to = static_cast<char*>(codes);
  const auto code = [&](Vec v) {
    const ShortVec h = Code::narrow(v * set(factor));
    const ShortVec is =
        reinterpret_cast<ShortVec>((h & static_cast<uint16_t>(0x7fff)) == kInfinity);
    beyond -= is;
    return h + is;
  };
  vectors(
      n, [&](int64_t i) { store_shorts(to + 2 * i, code(load(x + i))); },
      [&](int64_t i, int64_t rest) {
        const ShortVec h = code(load_n(x + i, rest));
        copy(to + 2 * i, &h, 2 * rest);
      });
  int64_t total = 0;
  for (int lane = 0; lane < kWidth; ++lane) total += beyond[lane];
  return total;
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
int64_t zeros(const float* x, int64_t n) {
  IntVec found{};  // minus their number
  vectors(
      n, [&](int64_t i) { found += load(x + i) == Vec{}; },
      [&](int64_t i, int64_t rest) {
        found += keep_n(load_n(x + i, rest), rest, set(1.0f)) == Vec{};
      });
  int64_t total = 0;
  for (int lane = 0; lane < kWidth; ++lane) total -= found[lane];
  return total;
}
int64_t zero_bytes(const uint8_t* codes, int64_t n, uint8_t mask) {
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) found += (codes[i] & mask) == 0;
  return found;
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
    {narrow<Half, 0x7c00>, widen<Half, false>, widen<Half, true>},
    {narrow<Bfloat16, 0x7f80>, widen<Bfloat16, false>, widen<Bfloat16, true>},
    add,
    zeros,
    zero_bytes,
};

}  // namespace lockstep::cpu
