#include "core/kernels/cpu/magnitudes_loops.h"

#include "core/kernels/cpu/vec.h"

namespace lockstep::cpu {
namespace {

typedef uint8_t ByteVec __attribute__((vector_size(kWidth)));
constexpr int kTables = MagnitudeTables::kTables;
constexpr int kStep = 16;  // elements at a time: as many as the widest vector has

inline int64_t sum(IntVec v) {
  int64_t total = 0;
  for (int lane = 0; lane < kWidth; ++lane) total += v[lane];
  return total;
}

void count(MagnitudeTables* tables, const float* x, int64_t n) {
  IntVec zeros{}, nans{};  // minus their number in each lane
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    uint64_t exponents[kStep / kTables];
    for (int j = 0; j < kStep; j += kWidth) {
      const WordVec bits = reinterpret_cast<WordVec>(load(x + i + j)),
                    magnitude = bits & 0x7fffffffu;
      zeros += magnitude == 0u;
      nans += magnitude > 0x7f800000u;
      const ByteVec exponent = __builtin_convertvector(magnitude >> 23, ByteVec);
      __builtin_memcpy(reinterpret_cast<char*>(exponents) + j, &exponent, sizeof exponent);
    }
    for (uint64_t eight : exponents)
      for (int table = 0; table < kTables; ++table)
        ++tables->exponents[table][(eight >> (8 * table)) & 0xff];
  }
  tables->zeros -= sum(zeros);
  tables->nans -= sum(nans);
  for (; i < n; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, x + i, 4);
    bits &= 0x7fffffffu;
    tables->zeros += bits == 0;
    tables->nans += bits > 0x7f800000u;
    ++tables->exponents[0][bits >> 23];
  }
}

}  // namespace

const MagnitudesLoops LOCKSTEP_LOOPS_TABLE(Magnitudes) = {count};

}  // namespace lockstep::cpu
