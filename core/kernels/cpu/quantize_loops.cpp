#include "core/kernels/cpu/quantize_loops.h"

#include "core/kernels/cpu/bytes_vec.h"
#include "core/kernels/cpu/half_vec.h"
#include "core/kernels/cpu/tile_vec.h"

namespace lockstep::cpu {
namespace {

typedef uint16_t AnyShortVec __attribute__((vector_size(2 * kWidth), aligned(1), may_alias));
inline ShortVec load_shorts(const void* p) { return *static_cast<const AnyShortVec*>(p); }
inline void store_shorts(void* p, ShortVec v) { *static_cast<AnyShortVec*>(p) = v; }
inline IntVec widen_shorts(ShortVec v) {
#if defined(LOCKSTEP_ISA_Avx512)
  return reinterpret_cast<IntVec>(
      _mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(v)));
#else
  return __builtin_convertvector(v, IntVec);
#endif
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
    to_codes,
    of_step<false>,
    of_step<true>,
    of_range<false>,
    of_range<true>,
    {narrow<Half>, saturate<0x7c00>, widen<Half, false>, widen<Half, true>},
    {narrow<Bfloat16>, saturate<0x7f80>, widen<Bfloat16, false>, widen<Bfloat16, true>},
    add,
    vanished,
};

}  // namespace lockstep::cpu
