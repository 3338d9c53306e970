#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// A magnitude is a float's bits without the sign, which are ordered as what they stand for. All
/// NaN have the same one.
constexpr int32_t kNanMagnitude = 0x7f800001;

/// Numbers with their indices: first, first + 1, … or those of a list, behind which (and behind its
/// numbers) lies kListPad of room that may be read.
struct Stretch {
  const float* values;
  const int32_t* indices;  ///< null: no list
  int64_t n;
  int32_t first;
};
constexpr int64_t kListPad = 16;

/// How many magnitudes fall below a range, into each of its buckets, and above it. Neighbours count
/// in tables of their own, see MagnitudeTables.
struct BucketTables {
  static constexpr int kTables = 4, kBuckets = 2048;
  uint32_t counts[kTables][kBuckets + 16];
};

struct TopkLoops {
  /// Adds those of n < 2^31 numbers. Bucket b = 1, 2, …, buckets has the magnitudes from
  /// low + ((b - 1) << shift) to below low + (b << shift); 0 those below, buckets + 1 those above.
  void (*count_buckets)(BucketTables* tables, const float* x, int64_t n, int32_t low, int shift,
                        int32_t buckets);
  /// How many of n < 2^31 magnitudes are above one, which may be -1.
  int64_t (*count_above)(const float* x, int64_t n, int32_t magnitude);
  /// Copies the numbers above a magnitude (which may be -1) and the first `ties` of those that have
  /// it, with their indices, until `room` of them are there; returns how many are.
  int64_t (*take)(float* values, int32_t* indices, int64_t room, const Stretch& from,
                  int32_t magnitude, int64_t ties);
  /// Those alone that have it; `from` is no list.
  int64_t (*take_ties)(float* values, int32_t* indices, int64_t room, const Stretch& from,
                       int32_t magnitude);
};
LOCKSTEP_DECLARE_LOOPS(Topk);

}  // namespace lockstep::cpu
