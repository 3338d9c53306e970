#pragma once
#include <stdint.h>

namespace lockstep::cpu {

/// The counter and key of random.h's Random, laid open.
struct PhiloxKey {
  uint32_t seed0, seed1, key, stream;
};

}  // namespace lockstep::cpu
