#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// One (batch, head) pair. Rows of q, k, v lie `row` floats apart, those of out `out_row`; only the
/// first `length` positions exist, the others give zeros. `work` has the floats asked for below.
struct AttentionHead {
  int64_t positions, length, width;  ///< T, keys and queries that exist, C / heads
  float scale;
  bool causal;
  int64_t row, out_row;
  const float *q, *k, *v;
  float *out, *lse, *work;
  // Backward only: rows as above.
  const float* dout;
  float *dq, *dk, *dv;
};

struct AttentionLoops {
  int64_t (*forward_floats)(int64_t positions, int64_t width);
  int64_t (*backward_floats)(int64_t positions, int64_t width);
  void (*forward)(const AttentionHead&);
  void (*backward)(const AttentionHead&);
};
LOCKSTEP_DECLARE_LOOPS(Attention);

}  // namespace lockstep::cpu
