#include <algorithm>
#include <cstring>
#include <cmath>

#include "core/kernels/cpu/codec_loops.h"
#include "core/kernels/cpu/one_pass.h"

/// The floating codes of quantize.h: two bytes, and one.
namespace lockstep::kernel {

using namespace cpu;
using namespace cpu::one_pass;

namespace {

const CodecLoops& codec_loops() { return LOCKSTEP_PICK_LOOPS(Codec); }

// x, or a copy in `room` without what a format with few bits would round beyond the largest float.
const float* below(float limit, const float* x, int64_t n, float largest, Room& room) {
  if (largest <= limit) return x;
  for (int64_t i = 0; i < n; ++i) room.floats[i] = std::clamp(x[i], -limit, limit);
  return room.floats;
}

const QuantizeLoops::Narrow& narrow_loops(DType dtype) {
  check(dtype == DType::f16 || dtype == DType::bf16,
        "[kernel.quantize] narrow type; expected f16 or bf16, got {}", name_of(dtype));
  return dtype == DType::f16 ? quantize_loops().half : quantize_loops().bfloat16;
}
}  // namespace

Narrowed encode_narrow(std::byte* codes, DType dtype, const FedBack& in, float factor) {
  const QuantizeLoops::Narrow& loops = narrow_loops(dtype);
  const float limit = dtype == DType::f16 ? 0x1.ffcp127f : 0x1.fep127f;
  const float last = dtype == DType::f16 ? 65504.0f : 0x1.fep127f;
  std::atomic<int64_t> beyond = 0;
  std::atomic<bool> finite = true;
  const auto saturate = [&](int64_t at, int64_t n, float largest) {
    if (!(largest * factor > last)) return;
    beyond.fetch_add(loops.saturate(codes + 2 * at, n), std::memory_order_relaxed);
  };
  if (in.residual == nullptr && in.next == nullptr) {  // nothing to be asked first
    each_chunk(in.numel, kChunk, [&](int64_t at, int64_t n) {
      const uint32_t largest = loops.to(codes + 2 * at, in.values + at, n, factor);
      if (largest >= kInfinityBits) finite.store(false, std::memory_order_relaxed);
      if (largest < std::bit_cast<uint32_t>(limit) || factor == 1)
        return saturate(at, n, std::bit_cast<float>(largest));
      Room room;
      loops.to(codes + 2 * at, below(limit, in.values + at, n, INFINITY, room), n, factor);
      saturate(at, n, limit);
    });
  } else {
    const auto encode = [&](int64_t at, int64_t n, const float* x, float largest, Rooms&) {
      Room room;  // without a factor what is beyond is counted
      if (factor != 1) x = below(limit, x, n, largest, room);
      loops.to(codes + 2 * at, x, n, factor);
      saturate(at, n, largest);
    };
    const auto decode = [&](int64_t at, int64_t n, float* out, Rooms&) {
      loops.of(out, codes + 2 * at, n, 1 / factor);
    };
    finite = in_one_pass(in, kChunk, encode, decode);
  }
  if (finite) return {.beyond = beyond};
  std::memset(codes, 0, static_cast<size_t>(2 * in.numel));
  return {.finite = false};
}

void add_narrow(float* out, int64_t numel, const std::byte* codes, DType dtype, float factor) {
  const QuantizeLoops::Narrow& loops = narrow_loops(dtype);
  each_chunk(numel, kChunk,
             [&](int64_t at, int64_t n) { loops.add(out + at, codes + 2 * at, n, factor); });
}

namespace {

struct EighthsLoops {
  void (*to)(uint8_t*, const float*, int64_t, const CodecLoops::Encode&);
  void (*of)(float*, const uint8_t*, int64_t, float);
  uint8_t last;   // code of the largest
  float largest;  // that is rounded to it
  float limit;    // the largest float with as few bits
};
EighthsLoops eighths_loops(Fp8 format) {
  const CodecLoops& loops = codec_loops();
  if (format == Fp8::e4m3) return {loops.encode_e4m3, loops.decode_e4m3, 0x7e, 464, 0x1.ep127f};
  return {loops.encode_e5m2, loops.decode_e5m2, 0x7b, 61439, 0x1.cp127f};
}
// Powers of two from 2^-126 to 2^126 as a byte.
std::byte byte_of_power(float power) {
  return static_cast<std::byte>(std::bit_cast<uint32_t>(power) >> 23);
}
float power_of_byte(std::byte b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 23); }
bool is_power(std::byte b) { return b >= std::byte{1} && b <= std::byte{253}; }

}  // namespace

Eighths encode_eighths(std::byte* powers, std::byte* codes, const FedBack& in,
                       const EighthCode& code) {
  const QuantizeLoops& loops = quantize_loops();
  const EighthsLoops eighths = eighths_loops(code.format);
  const bool whole = code.block == 0;
  float factor = 1;
  if (whole) {
    factor =
        power_below(code.amplitude < 0 ? largest_magnitude(in) : code.amplitude, eighths.largest);
    *powers = byte_of_power(factor);
  }
  std::atomic<int64_t> vanished = 0;
  const auto encode = [&](int64_t at, int64_t n, const float* x, float largest, Rooms&) {
    float by = factor;
    if (!whole) {
      by = power_below(largest, eighths.largest);
      powers[at / code.block] = byte_of_power(by);
    }
    Room room;
    x = below(eighths.limit, x, n, largest, room);
    uint8_t* to = bytes_of(codes) + at;
    eighths.to(to, x, n, {by, eighths.last, nullptr});
    const int64_t here = loops.vanished(x, to, n);
    if (here > 0) vanished.fetch_add(here, std::memory_order_relaxed);
  };
  const auto decode = [&](int64_t at, int64_t n, float* out, Rooms&) {
    const float by = whole ? factor : power_of_byte(powers[at / code.block]);
    eighths.of(out, bytes_of(codes) + at, n, 1 / by);
  };
  if (in_one_pass(in, whole ? kChunk : code.block, encode, decode))
    return {.vanished = vanished.load(std::memory_order_relaxed)};
  std::memset(powers, 127, static_cast<size_t>(code.powers(in.numel)));
  std::memset(codes, 0, static_cast<size_t>(in.numel));
  return {.finite = false};
}

bool add_eighths(float* out, int64_t numel, const std::byte* powers, const std::byte* codes,
                 const EighthCode& code) {
  const QuantizeLoops& loops = quantize_loops();
  const EighthsLoops eighths = eighths_loops(code.format);
  std::atomic<bool> good = true;
  each_chunk(numel, code.block == 0 ? kChunk : code.block, [&](int64_t at, int64_t n) {
    const std::byte power = powers[code.block == 0 ? 0 : at / code.block];
    Room room;
    eighths.of(room.floats, bytes_of(codes) + at, n, 1 / power_of_byte(power));
    if (!is_power(power) || loops.largest(room.floats, n) >= kInfinityBits)
      good.store(false, std::memory_order_relaxed);
    else
      loops.add(out + at, room.floats, n);
  });
  return good.load(std::memory_order_relaxed);
}

}  // namespace lockstep::kernel
