#include <cmath>

#include "core/kernels/cpu/dropout_loops.h"
#include "core/kernels/cpu/floats.h"
#include "core/kernels/elementwise.h"

namespace lockstep::cpu {
namespace {

void dropout(const Tensor& out, const Tensor& x, float p, kernel::DropoutKey key) {
  expect_same_floats("dropout", {&x, &out});
  check(p >= 0 && p < 1, "[kernel.dropout] probability; expected [0, 1), got {}", p);
  check(x.rank() >= 1, "[kernel.dropout] expected [samples, ...], got shape {}", x.shape());
  if (x.numel() == 0) return;
  const int64_t samples = x.size(0), each = x.numel() / samples;
  const uint64_t blocks = static_cast<uint64_t>((each + 3) / 4);
  // An element stays where its uniform in [0, 1), of 24 bits, is not below p.
  const auto threshold = static_cast<uint32_t>(std::ceil(static_cast<double>(p) * 0x1p24));
  const PhiloxKey philox{static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32),
                         key.site, static_cast<uint32_t>(RandomStream::dropout)};
  const FloatsIn in(x);
  const FloatsOut to(out);
  const float keep = 1.0f / (1.0f - p);
  const auto& loops = LOCKSTEP_PICK_LOOPS(Dropout);
  // Pieces of a multiple of four elements, so that they begin at a Philox block.
  const int64_t width = std::min<int64_t>(each, 4096), pieces = (each + width - 1) / width;
  parallel_for(samples * pieces, row_grain(4 * width), [&](int64_t begin, int64_t end) {
    Room kept, from;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t sample = i / pieces, first = i % pieces * width;
      in_rooms(any_narrow(in, to), first, std::min(first + width, each),
               [&](int64_t at, int64_t n) {
                 const int64_t offset = sample * each + at;
                 const uint64_t block = static_cast<uint64_t>(key.first_sample + sample) * blocks +
                                        static_cast<uint64_t>(at / 4);
                 loops.dropout(to.place(offset, kept), in.read(offset, n, from), n, threshold, keep,
                               philox, block);
                 to.write(offset, n, kept);
               });
    }
  });
}

const Provide provided{kernel::dropout, DeviceType::cpu, dropout};

}  // namespace
}  // namespace lockstep::cpu
