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

/// SystemError(device) showing the sum unless tables and state, as many times as ranks of this
/// machine hold all of them (`copies`), fit into `available` bytes. To be
/// asked before the tables are made: the system would promise the memory, and end the process when
/// it is touched.
void expect_tables_fit(std::span<const int64_t> rows, int64_t width, const Spec& optimizer,
                       int64_t available, int64_t copies = 1);

}  // namespace lockstep::optim
