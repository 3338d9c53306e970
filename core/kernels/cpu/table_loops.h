#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// Rows to step. Their gradients lie one after another.
struct RowTask {
  float* table;
  const int64_t* rows;
  const float* gradients;  ///< [n, width]
  int64_t n, width;
  bool fetched;  ///< they are in the cache already
};

/// Worked out in double and rounded once. w is multiplied by keep first.
struct RowConstants {
  float lr, factor, keep, eps;
  float beta2, fresh1, fresh2, step_size, scale2;  ///< as in AdamConstants
};

struct TableLoops {
  void (*sgd)(const RowTask&, const RowConstants&);
  void (*adagrad)(const RowTask&, float* squares, const RowConstants&);
  void (*rowwise_adagrad)(const RowTask&, float* squares, const RowConstants&);
  void (*adam)(const RowTask&, float* m, float* v, const RowConstants&);
};
LOCKSTEP_DECLARE_LOOPS(Table);

}  // namespace lockstep::cpu
