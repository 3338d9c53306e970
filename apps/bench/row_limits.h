#pragma once
#include <cstdint>

namespace lockstep::apps {

/// Loops that do nothing but go to rows of 16 floats at random, `ahead` of them fetched early: what
/// memory gives for embedding tables. In the instruction set in use.
struct RowLoops {
  /// A number that depends on all rows.
  float (*read)(const float* table, const int64_t* rows, int64_t n, int64_t ahead);
  /// Adds to all of them.
  void (*update)(float* table, const int64_t* rows, int64_t n, int64_t ahead);
};
RowLoops row_loops();
inline constexpr int64_t kRowFloats = 16;

}  // namespace lockstep::apps
