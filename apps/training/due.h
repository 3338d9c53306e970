#pragma once
#include <cstdint>

namespace lockstep::apps {

/// Whether something that is due every so many steps (0: never) is due in (from, to], from >= -1:
/// once, also where a rank has left out steps in between.
constexpr bool due_since(int64_t from, int64_t to, int64_t every) {
  return every > 0 && (to + every) / every > (from + every) / every;
}

}  // namespace lockstep::apps
