#pragma once
#include <cstdint>

namespace lockstep::cpu {

/// Sorts numbers of row << 32 | position by row, where 0 <= row < rows; equal rows stay in the
/// order in which they were, which must be that of their positions. `other`: room for as many.
void sort_rows(uint64_t* entries, uint64_t* other, int64_t n, int64_t rows);

}  // namespace lockstep::cpu
