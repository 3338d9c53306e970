#pragma once
#include <atomic>
#include <bit>

#include "core/kernels/cpu/host.h"
#include "core/kernels/cpu/quantize_loops.h"
#include "core/kernels/quantize.h"

/// Note [Codes in one pass]
/// What is encoded goes through the first-level cache once, a few hundred to a few thousand
/// elements at a time: values and residuals are added up into a room on the stack, what the code
/// needs to know of them (the largest magnitude of a block) is asked there, the room is encoded,
/// the code decoded into a second room, and the difference stored as the next residual. Memory is
/// read and written once, and every code is a few short loops of its own, each with a plain twin in
/// the tests. Steps have so few bits that multiples of them are exact: decoding rounds nothing, and
/// of what was rounded to nearest x - decoded is exact, too.
namespace lockstep::cpu::one_pass {

inline constexpr int64_t kRoom = kernel::BlockCode::kMostBlock, kChunk = 1024;
inline constexpr uint32_t kInfinityBits = 0x7f800000;

inline const QuantizeLoops& quantize_loops() { return LOCKSTEP_PICK_LOOPS(Quantize); }
inline uint8_t* bytes_of(std::byte* p) { return reinterpret_cast<uint8_t*>(p); }
inline const uint8_t* bytes_of(const std::byte* p) { return reinterpret_cast<const uint8_t*>(p); }
// f(at, n) over chunks of `chunk` elements, by the threads of the budget.
template <class F>
void each_chunk(int64_t numel, int64_t chunk, F f) {
  parallel_for((numel + chunk - 1) / chunk, std::max<int64_t>(kGrain / chunk, 1),
               [&](int64_t begin, int64_t end) {
                 for (int64_t c = begin; c < end; ++c)
                   f(c * chunk, std::min(chunk, numel - c * chunk));
               });
}

struct alignas(64) Room {
  float floats[kRoom];
};
// Of one chunk: codes, a byte each, and random bits.
struct Rooms {
  alignas(64) uint8_t codes[kRoom];
  alignas(64) uint16_t halves[kRoom];
};

// x of elements [at, at + n), where it lies or in `room`; the bits of its largest magnitude.
struct Made {
  const float* x;
  uint32_t largest;
};
inline Made make(const QuantizeLoops& loops, const kernel::FedBack& in, int64_t at, int64_t n,
                 Room& room) {
  if (in.residual == nullptr) return {in.values + at, loops.largest(in.values + at, n)};
  return {room.floats,
          loops.add_residual(room.floats, in.values + at, in.residual + at, in.scale, n)};
}

// encode(at, n, x, largest magnitude, rooms), then, where the next residual is wanted, decode(at,
// n, out, rooms). False where x is not finite; what is not, is not encoded.
template <class Encode, class Decode>
bool in_one_pass(const kernel::FedBack& in, int64_t chunk, Encode encode, Decode decode) {
  const QuantizeLoops& loops = quantize_loops();
  std::atomic<bool> finite = true;
  each_chunk(in.numel, chunk, [&](int64_t at, int64_t n) {
    Room x;
    Rooms rooms;
    const Made made = make(loops, in, at, n, x);
    if (made.largest >= kInfinityBits) {
      finite.store(false, std::memory_order_relaxed);
      return;
    }
    encode(at, n, made.x, std::bit_cast<float>(made.largest), rooms);
    if (in.next == nullptr) return;
    Room decoded;
    decode(at, n, decoded.floats, rooms);
    loops.keep(in.next + at, made.x, decoded.floats, 1 / in.scale, n);
  });
  return finite.load(std::memory_order_relaxed);
}

}  // namespace lockstep::cpu::one_pass
