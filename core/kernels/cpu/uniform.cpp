#include "core/kernels/cpu/host.h"
#include "core/kernels/cpu/uniform_loops.h"
#include "core/kernels/elementwise.h"

namespace lockstep::cpu {
namespace {

void uniform(const Tensor& out, double bound, kernel::UniformKey key) {
  check(key.first >= 0, "[kernel.uniform] first element; expected 0 or more, got {}", key.first);
  checked_add(key.first, out.numel());
  float* to = out.mutable_data<float>();
  const PhiloxKey philox{static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32),
                         key.key, static_cast<uint32_t>(key.stream)};
  const auto& loops = LOCKSTEP_PICK_LOOPS(Uniform);
  parallel_for(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    loops.uniform(to + begin, end - begin, bound, philox, static_cast<uint64_t>(key.first + begin));
  });
}

const Provide provided{kernel::uniform, DeviceType::cpu, uniform};

}  // namespace
}  // namespace lockstep::cpu
