#pragma once
#include "core/kernels/cpu/loops.h"
#include "core/kernels/fold_options.h"

namespace lockstep::cpu {

/// kernel::fold on raw pointers.
struct FoldTask {
  void* const* outs;
  int64_t out_count;
  const void* const* ins;
  int64_t in_count;
  int64_t numel;
  FoldOptions options;
};

struct FoldLoops {
  void (*f32)(const FoldTask&);
  void (*f16)(const FoldTask&);
  void (*bf16)(const FoldTask&);
  void (*i64)(const FoldTask&);
  void (*i32)(const FoldTask&);
  void (*u8)(const FoldTask&);
};
LOCKSTEP_DECLARE_LOOPS(Fold);

}  // namespace lockstep::cpu
