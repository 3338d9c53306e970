#include "core/kernels/magnitudes.h"

#include <cstring>

#include "core/kernels/cpu/floats.h"
#include "core/kernels/cpu/magnitudes_loops.h"

namespace lockstep::cpu {
namespace {

using namespace kernel;

void count_magnitudes(const Tensor& counts, const Tensor& x) {
  expect_floats("count_magnitudes", {&x});
  expect_dtype("count_magnitudes", "counts", counts, DType::i64);
  expect_shape("count_magnitudes", "counts", counts, Shape{kMagnitudes});
  constexpr int64_t kPiece = 4 * kGrain, kAtOnce = int64_t{1} << 30;
  const FloatsIn in(x);
  const auto& loops = LOCKSTEP_PICK_LOOPS(Magnitudes);
  const int pieces = parallel_pieces(x.numel(), kPiece);
  const Scratch<MagnitudeTables> tables(pieces);
  std::memset(tables.data(), 0, static_cast<size_t>(pieces) * sizeof(MagnitudeTables));
  parallel_for(x.numel(), kPiece, [&](int64_t begin, int64_t end, int piece) {
    Room room;
    in_rooms(in.narrow(), begin, end, [&](int64_t at, int64_t n) {
      const float* floats = in.read(at, n, room);
      for (int64_t i = 0; i < n; i += kAtOnce)
        loops.count(&tables[piece], floats + i, std::min(kAtOnce, n - i));
    });
  });
  int64_t* to = counts.mutable_data<int64_t>();
  for (int piece = 0; piece < pieces; ++piece) {
    for (const auto& table : tables[piece].exponents)
      for (int exponent = 0; exponent < 256; ++exponent) to[exponent] += table[exponent];
    const int64_t zeros = tables[piece].zeros, nans = tables[piece].nans;
    to[0] -= zeros;
    to[kInfinities] -= nans;
    to[kNans] += nans;
    to[kZeros] += zeros;
  }
}

const Provide provided{kernel::count_magnitudes, DeviceType::cpu, cpu::count_magnitudes};

}  // namespace
}  // namespace lockstep::cpu
