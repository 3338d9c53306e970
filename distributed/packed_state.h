#pragma once
#include <functional>

#include "core/state_io.h"

namespace lockstep::distributed {

/// State of an object as bytes, to travel as one tensor: pieces one after the other, without their
/// names, so both sides must show the same ones.
using StateWalk = std::function<void(StateIo&)>;
int64_t packed_bytes(const StateWalk& walk);
/// `bytes`: u8, packed_bytes(walk) of them, which is checked.
void pack_state(const Tensor& bytes, const StateWalk& walk);
void unpack_state(const Tensor& bytes, const StateWalk& walk);

}  // namespace lockstep::distributed
