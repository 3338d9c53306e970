#include "core/kernels/cpu/topk_loops.h"

#include "core/kernels/cpu/vec.h"

namespace lockstep::cpu {
namespace {

inline IntVec without_sign(Vec v) { return reinterpret_cast<IntVec>(v) & 0x7fffffff; }
inline IntVec magnitudes(Vec v) {
  const IntVec bits = without_sign(v);
  return bits < kNanMagnitude ? bits : set_int(kNanMagnitude);
}

// Masks have a bit for each lane. pack() stores the lanes of a mask, in their order, to the front
// of a whole vector; what comes behind them in memory is anything.
#if defined(LOCKSTEP_ISA_Avx512)
// By its name: where registers are short GCC 12 stores the 16 bits of a mask with kmovw and reads
// 32 of them back to count them.
inline uint32_t bits_of(__mmask16 mask) {
  uint32_t bits;
  asm("kmovw %1, %0" : "=r"(bits) : "k"(mask));
  return bits;
}
inline uint32_t greater(IntVec a, IntVec b) {
  return bits_of(
      _mm512_cmpgt_epi32_mask(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
inline uint32_t equal(IntVec a, IntVec b) {
  return bits_of(
      _mm512_cmpeq_epi32_mask(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
inline void pack(float* values, int32_t* indices, Vec v, IntVec at, uint32_t mask) {
  const auto lanes = static_cast<__mmask16>(mask);
  _mm512_storeu_ps(values, _mm512_maskz_compress_ps(lanes, v));
  _mm512_storeu_si512(indices, _mm512_maskz_compress_epi32(lanes, reinterpret_cast<__m512i>(at)));
}
#elif defined(LOCKSTEP_ISA_Avx2)
struct Lanes {
  uint8_t of[256][kWidth] = {};  // the lanes of each mask
  constexpr Lanes() {
    for (int mask = 0; mask < 256; ++mask)
      for (int lane = 0, to = 0; lane < kWidth; ++lane)
        if (mask >> lane & 1) of[mask][to++] = static_cast<uint8_t>(lane);
  }
};
constexpr Lanes kLanes;

inline uint32_t bits_of(IntVec mask) {
  return static_cast<uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(mask)));
}
inline uint32_t greater(IntVec a, IntVec b) { return bits_of(a > b); }
inline uint32_t equal(IntVec a, IntVec b) { return bits_of(a == b); }
inline void pack(float* values, int32_t* indices, Vec v, IntVec at, uint32_t mask) {
  const __m256i lanes =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kLanes.of[mask])));
  _mm256_storeu_ps(values, _mm256_permutevar8x32_ps(v, lanes));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(indices),
                      _mm256_permutevar8x32_epi32(reinterpret_cast<__m256i>(at), lanes));
}
#else
inline uint32_t bits_of(IntVec mask) {
#if defined(__x86_64__)
  return static_cast<uint32_t>(_mm_movemask_ps(reinterpret_cast<__m128>(mask)));
#else
  uint32_t bits = 0;
  for (int lane = 0; lane < kWidth; ++lane) bits |= (mask[lane] & 1u) << lane;
  return bits;
#endif
}
inline uint32_t greater(IntVec a, IntVec b) { return bits_of(a > b); }
inline uint32_t equal(IntVec a, IntVec b) { return bits_of(a == b); }
inline void pack(float* values, int32_t* indices, Vec v, IntVec at, uint32_t mask) {
  if (mask == 0) return;
  for (int lane = 0, to = 0; lane < kWidth; ++lane) {
    values[to] = v[lane];
    indices[to] = at[lane];
    to += mask >> lane & 1;
  }
}
#endif

inline int64_t sum(IntVec v) {
  int64_t total = 0;
  for (int lane = 0; lane < kWidth; ++lane) total += v[lane];
  return total;
}
inline int64_t count_of(uint32_t mask) {
#if defined(__POPCNT__)
  return __builtin_popcount(mask);
#else  // of four lanes: a call of the library's function would take longer than all the rest
  return 0x4332322132212110 >> (4 * mask) & 7;
#endif
}

void count_buckets(BucketTables* tables, const float* x, int64_t n, int32_t low, int shift,
                   int32_t buckets) {
  constexpr int kTables = BucketTables::kTables;
  const auto bucket_of = [&](Vec v) {
    const IntVec at = ((magnitudes(v) - low) >> shift) + 1;
    const IntVec above = at < buckets + 1 ? at : set_int(buckets + 1);
    return above > 0 ? above : IntVec{};
  };
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    uint64_t pairs[kWidth / 2];  // by way of memory: quicker than lane after lane
    const IntVec at = bucket_of(load(x + i));
    __builtin_memcpy(pairs, &at, sizeof at);
    for (int p = 0; p < kWidth / 2; ++p) {
      ++tables->counts[2 * p % kTables][pairs[p] & 0xffffffffu];
      ++tables->counts[(2 * p + 1) % kTables][pairs[p] >> 32];
    }
  }
  if (i == n) return;
  const IntVec at = bucket_of(load_n(x + i, n - i));
  for (int lane = 0; lane < n - i; ++lane) ++tables->counts[lane % kTables][at[lane]];
}

int64_t count_above(const float* x, int64_t n, int32_t magnitude) {
  IntVec above{};  // minus their number in each lane
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) above += magnitudes(load(x + i)) > magnitude;
  if (i < n)
    above += (magnitudes(load_n(x + i, n - i)) > magnitude) &
             (iota() < set_int(static_cast<int32_t>(n - i)));
  return -sum(above);
}

enum class Take { above, ties, both };

// The mask of what to take of a vector; takes its ties off `ties` where both are taken.
template <Take kWhat>
inline uint32_t chosen(IntVec magnitude, IntVec bound, uint32_t lanes, int64_t& ties) {
  if constexpr (kWhat == Take::ties) return equal(magnitude, bound) & lanes;
  uint32_t mask = greater(magnitude, bound) & lanes;
  if constexpr (kWhat == Take::both) {
    uint32_t tied = equal(magnitude, bound) & lanes;
    const int64_t count = count_of(tied);
    if (count <= ties) {
      mask |= tied;
      ties -= count;
    } else {
      for (; ties > 0; --ties, tied &= tied - 1) mask |= tied & (0u - tied);
    }
  }
  return mask;
}

template <bool kList, Take kWhat>
int64_t take(float* values, int32_t* indices, int64_t room, const Stretch& from, int32_t magnitude,
             int64_t ties) {
  const float* const numbers = from.values;
  const int32_t* const list = from.indices;
  const int64_t n = from.n;
  // Only where ties count need all NaN be made one; above NaN there is nothing.
  constexpr bool kPlain = kWhat == Take::above;
  const IntVec bound = set_int(kPlain && magnitude >= kNanMagnitude ? INT32_MAX : magnitude);
  const auto magnitudes_of = [](Vec v) { return kPlain ? without_sign(v) : magnitudes(v); };
  const uint32_t all = (1u << kWidth) - 1u;
  IntVec place = iota() + from.first;
  const auto indices_at = [&](int64_t i) {
    if constexpr (kList) return IntVec(*reinterpret_cast<const UnalignedIntVec*>(list + i));
    return place;
  };
  int64_t i = 0, taken = 0;
  // Whole vectors, always stored: a branch around it would be mispredicted too often.
  for (; i + kWidth <= n && taken + kWidth <= room; i += kWidth, place += kWidth) {
    const Vec v = load(numbers + i);
    const uint32_t mask = chosen<kWhat>(magnitudes_of(v), bound, all, ties);
    pack(values + taken, indices + taken, v, indices_at(i), mask);
    taken += count_of(mask);
  }
  // The end of the stretch, or of the room, beyond which nothing may be written.
  for (; i < n && taken < room; i += kWidth, place += kWidth) {
    const int64_t rest = n - i < kWidth ? n - i : kWidth;
    const Vec v = kList || rest == kWidth ? load(numbers + i) : load_n(numbers + i, rest);
    const uint32_t lanes = rest == kWidth ? all : (1u << rest) - 1u;
    const uint32_t mask = chosen<kWhat>(magnitudes_of(v), bound, lanes, ties);
    float some[kWidth] = {};
    int32_t theirs[kWidth] = {};
    pack(some, theirs, v, indices_at(i), mask);
    const int64_t count = count_of(mask) < room - taken ? count_of(mask) : room - taken;
    for (int64_t j = 0; j < count; ++j) {
      values[taken + j] = some[j];
      indices[taken + j] = theirs[j];
    }
    taken += count;
  }
  return taken;
}

int64_t take_any(float* values, int32_t* indices, int64_t room, const Stretch& from,
                 int32_t magnitude, int64_t ties) {
  const bool list = from.indices != nullptr;
  const auto as = ties > 0 ? list ? take<true, Take::both> : take<false, Take::both>
                  : list ? take<true, Take::above>
                           : take<false, Take::above>;
  return as(values, indices, room, from, magnitude, ties);
}

int64_t take_ties(float* values, int32_t* indices, int64_t room, const Stretch& from,
                  int32_t magnitude) {
  return take<false, Take::ties>(values, indices, room, from, magnitude, 0);
}

}  // namespace

const TopkLoops LOCKSTEP_LOOPS_TABLE(Topk) = {count_buckets, count_above, take_any, take_ties};

}  // namespace lockstep::cpu
