#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>

/// What this process runs on and is made of.
namespace lockstep::apps {

nlohmann::ordered_json machine();   ///< host, system, processor, cores, memory_bytes, isa
nlohmann::ordered_json versions();  ///< lockstep, compiler, build, libraries

/// Memory of the machine, or the control group's limit where that is lower.
int64_t memory_bytes();
/// Most memory this process ever held (VmHWM); 0 where the system does not say.
int64_t peak_memory_bytes();

}  // namespace lockstep::apps
