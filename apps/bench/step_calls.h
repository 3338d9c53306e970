#pragma once
#include "apps/bench/malloc_calls.h"
#include "apps/report/machine.h"
#include "core/allocator.h"

#include <nlohmann/json.hpp>

namespace lockstep::apps {

/// What this process asked for so far.
struct StepCalls {
  int64_t system = 0, malloc = 0;
  static StepCalls now() {
    return {host_allocator().stats().system_calls,
            lockstep_malloc_calls == nullptr ? 0 : lockstep_malloc_calls()};
  }
};

/// Adds what `steps` steps since `before` asked for, and the most memory this process held.
inline void add_memory(nlohmann::ordered_json& figures, const StepCalls& before, int64_t steps) {
  const StepCalls now = StepCalls::now();
  const auto a_step = [&](int64_t calls) {
    return static_cast<double>(calls) / static_cast<double>(steps);
  };
  figures["system_allocations_per_step"] = a_step(now.system - before.system);
  if (lockstep_malloc_calls != nullptr)
    figures["mallocs_per_step"] = a_step(now.malloc - before.malloc);
  figures["peak_memory_mb"] = static_cast<double>(peak_memory_bytes()) * 1e-6;
}

}  // namespace lockstep::apps
