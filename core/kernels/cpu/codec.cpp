#include "core/kernels/codec.h"

#include "core/kernels/cpu/codec_loops.h"
#include "core/kernels/cpu/floats.h"

namespace lockstep::cpu {
namespace {

using kernel::Fp8;
using kernel::Fp8Overflow;

// Words [first, first + n) of the sequence.
void draw(uint32_t* words, const Random& random, uint64_t first, int64_t n) {
  for (int64_t i = 0; i < n;) {
    const uint64_t at = first + static_cast<uint64_t>(i);
    const auto block = random.block(at / 4);
    for (uint64_t w = at % 4; w < 4 && i < n; ++w) words[i++] = block[w];
  }
}

void encode_fp8(const Tensor& codes, const Tensor& x, const kernel::Fp8Encoding& how) {
  expect_floats("encode_fp8", {&x});
  expect_dtype("encode_fp8", "codes", codes, DType::u8);
  check(codes.numel() == x.numel(), "[kernel.encode_fp8] codes; expected {} elements, got {}",
        x.numel(), codes.numel());
  const bool e4m3 = how.format == Fp8::e4m3;
  const uint8_t largest = e4m3 ? 0x7e : 0x7b;
  CodecLoops::Encode plan{how.scale, largest, nullptr};
  if (how.overflow == Fp8Overflow::special) plan.beyond = largest + 1;  // NaN, or infinity
  const auto& loops = LOCKSTEP_PICK_LOOPS(Codec);
  const auto encode = e4m3 ? loops.encode_e4m3 : loops.encode_e5m2;
  const FloatsIn in(x);
  uint8_t* out = codes.mutable_data<uint8_t>();
  const bool draws = how.stochastic != nullptr;
  parallel_for(x.numel(), draws ? kGrain / 8 : kGrain, [&](int64_t begin, int64_t end) {
    Room room;
    uint32_t words[kRoom];
    in_rooms(in.narrow() || draws, begin, end, [&](int64_t at, int64_t n) {
      CodecLoops::Encode piece = plan;
      if (draws) {
        draw(words, *how.stochastic, how.position + static_cast<uint64_t>(at), n);
        piece.words = words;
      }
      encode(out + at, in.read(at, n, room), n, piece);
    });
  });
}

void decode_fp8(const Tensor& out, const Tensor& codes, Fp8 format, float factor) {
  expect_floats("decode_fp8", {&out});
  expect_dtype("decode_fp8", "codes", codes, DType::u8);
  check(codes.numel() == out.numel(), "[kernel.decode_fp8] codes; expected {} elements, got {}",
        out.numel(), codes.numel());
  const auto& loops = LOCKSTEP_PICK_LOOPS(Codec);
  const auto decode = format == Fp8::e4m3 ? loops.decode_e4m3 : loops.decode_e5m2;
  const uint8_t* from = codes.data<uint8_t>();
  const FloatsOut to(out);
  parallel_for(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    Room room;
    in_rooms(to.narrow(), begin, end, [&](int64_t at, int64_t n) {
      decode(to.place(at, room), from + at, n, factor);
      to.write(at, n, room);
    });
  });
}

const Provide provided[] = {
    {kernel::encode_fp8, DeviceType::cpu, encode_fp8},
    {kernel::decode_fp8, DeviceType::cpu, decode_fp8},
};

}  // namespace
}  // namespace lockstep::cpu
