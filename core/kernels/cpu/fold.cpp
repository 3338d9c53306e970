#include "core/kernels/fold.h"

#include "core/kernels/cpu/fold_loops.h"
#include "core/kernels/cpu/isa.h"

namespace lockstep::kernel {

void fold(std::span<void* const> outs, std::span<const void* const> ins, DType dtype, int64_t numel,
          const FoldOptions& options) {
  const auto& loops = [&]() -> const cpu::FoldLoops& {
    using namespace cpu;
    return LOCKSTEP_PICK_LOOPS(Fold);
  }();
  const cpu::FoldTask task{outs.data(), static_cast<int64_t>(outs.size()),
                           ins.data(),  static_cast<int64_t>(ins.size()),
                           numel,       options};
  switch (dtype) {
    case DType::f32:
      return loops.f32(task);
    case DType::f16:
      return loops.f16(task);
    case DType::bf16:
      return loops.bf16(task);
    case DType::i64:
      return loops.i64(task);
    case DType::i32:
      return loops.i32(task);
    case DType::u8:
      return loops.u8(task);
  }
}

}  // namespace lockstep::kernel
