#pragma once
#include "core/spec.h"

#include <cstdint>
#include <span>

namespace lockstep::optim {

/// Bytes of embedding tables and of what a table optimizer keeps for them.
struct TableMemory {
  int64_t weights = 0, state = 0;
  int64_t all() const;
};
/// Without allocating them. UsageError for an unknown optimizer, or sizes beyond 64 bits.
TableMemory table_memory(std::span<const int64_t> rows, int64_t width, const Spec& optimizer);

/// What a machine holds of tables beside one copy of them and their state.
struct TableHolding {
  int64_t copies = 1;       ///< all of it so many times: one for each rank that has it all
  int64_t count_bytes = 0;  ///< of a row and copy: how often it was updated, where that is counted
};

/// SystemError(device) showing the sum unless tables and state fit into `available` bytes. To be
/// asked before the tables are made: the system would promise the memory, and end the process when
/// it is touched.
void expect_tables_fit(std::span<const int64_t> rows, int64_t width, const Spec& optimizer,
                       int64_t available, const TableHolding& holding = {});

}  // namespace lockstep::optim
