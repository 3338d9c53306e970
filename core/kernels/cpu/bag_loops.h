#pragma once
#include "core/kernels/bag_mode.h"
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// Bags of one table.
struct PoolTask {
  float* out;      ///< of the first bag
  int64_t stride;  ///< from bag to bag
  const float* table;
  const int32_t* rows;     ///< the batch's
  const int32_t* offsets;  ///< of the first bag; null: one row a bag
  const float* weights;    ///< the batch's
  int64_t first;           ///< without offsets: the first bag's index
  int64_t bags, width;
  const float* next_table;  ///< what is looked up next is fetched meanwhile: rows[next, next_end)
  int64_t next, next_end;
};

/// Rows that are needed soon: of the tables, or of an optimizer's state of them.
struct Soon {
  const float* rows;
  int64_t width;
};

/// Sums of gradients, one for each group of entries. The lower half of an entry says where its
/// gradient is: at from + half · width, or at sources[half], to be scaled.
struct GatherTask {
  float* sums;  ///< [groups, width]
  const uint64_t* entries;
  const uint32_t* starts;  ///< of the groups, and the end of the last; none is empty
  int64_t groups, width;
  int64_t ahead;  ///< groups that follow, whose gradients may be fetched
  const float* from;
  const float* const* sources;  ///< null: from
  const float* scales;
  const int64_t* row;  ///< of each group: that row of these is fetched meanwhile
  const Soon* soon;
  int soon_count;
};

struct BagLoops {
  /// Whether a row is negative or at least `limit`.
  int (*outside)(const int32_t* rows, int64_t n, int32_t limit);
  void (*sum)(const PoolTask&);
  void (*mean)(const PoolTask&);
  void (*weighted)(const PoolTask&);
  void (*gather)(const GatherTask&);
};
LOCKSTEP_DECLARE_LOOPS(Bag);

}  // namespace lockstep::cpu
