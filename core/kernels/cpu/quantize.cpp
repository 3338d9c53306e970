#include "core/kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/kernels/cpu/one_pass.h"
#include "core/kernels/cpu/pack_loops.h"
#include "core/kernels/cpu/uniform_loops.h"

namespace lockstep::kernel {

using namespace cpu;
using namespace cpu::one_pass;

namespace {

constexpr float kMost = std::numeric_limits<float>::max();
constexpr int kSignificand = 24;

const PackLoops& pack_loops() { return LOCKSTEP_PICK_LOOPS(Pack); }

float float_at(const std::byte* p, int64_t i) {
  float v;
  std::memcpy(&v, p + i * 4, 4);
  return v;
}
void put_float(std::byte* p, int64_t i, float v) { std::memcpy(p + i * 4, &v, 4); }

// Random bits for elements [at, at + n), or null; `at` is a multiple of 8.
class Drawn {
 public:
  explicit Drawn(const Draws* draws) : draws_(draws) {}
  const uint16_t* operator()(int64_t at, int64_t n, Rooms& rooms) const {
    if (draws_ == nullptr) return nullptr;
    const PhiloxKey key{static_cast<uint32_t>(draws_->seed),
                        static_cast<uint32_t>(draws_->seed >> 32), draws_->key,
                        static_cast<uint32_t>(RandomStream::stochastic_rounding)};
    const auto& loops = LOCKSTEP_PICK_LOOPS(Uniform);
    loops.halves(rooms.halves, n, key, draws_->position + static_cast<uint64_t>(at / 8));
    return rooms.halves;
  }

 private:
  const Draws* draws_;
};

// Codes of elements from `at` on are made a byte each, where they go or in a room, then packed; and
// back.
uint8_t* bytes_at(std::byte* codes, int64_t at, int bits, Rooms& rooms) {
  return bits == 8 ? bytes_of(codes) + at : rooms.codes;
}
void put_codes(const QuantizeLoops& loops, std::byte* codes, int64_t at, int64_t n, int bits,
               const float* x, const QuantizeLoops::ToCodes& how, Rooms& rooms) {
  loops.to_codes(bytes_at(codes, at, bits, rooms), x, n, how);
  if (bits != 8) pack_loops().pack(bytes_of(codes) + at * bits / 8, rooms.codes, n, bits);
}
const uint8_t* get_codes(const std::byte* codes, int64_t at, int64_t n, int bits, uint8_t* room) {
  const uint8_t* from = bytes_of(codes) + at * bits / 8;
  if (bits == 8) return from;
  pack_loops().unpack(room, from, n, bits);
  return room;
}
// Whether the bits after the last code are 0.
bool ends_with_zeros(const std::byte* codes, int64_t numel, int bits) {
  const int64_t used = numel * bits % 8;
  return used == 0 || bytes_of(codes)[numel * bits / 8] >> used == 0;
}

// What the codes of a block stand for.
struct Grid {
  float step = 0;                // of multiples
  float least = 0, largest = 0;  // of a range
};

class BlockCodec {
 public:
  explicit BlockCodec(const BlockCode& code)
      : code_(code),
        loops_(quantize_loops()),
        range_(code.grid == BlockCode::Grid::minmax),
        levels_(code.bits == 1 ? 1 : (1 << (code.bits - 1)) - 1),
        top_(range_ || code.bits == 1 ? (1 << code.bits) - 1 : 2 * levels_) {
    check(code.block >= 8 && code.block % 8 == 0 && code.block <= BlockCode::kMostBlock,
          "[kernel.quantize] block; expected a multiple of 8 up to {}, got {}",
          BlockCode::kMostBlock, code.block);
    check(code.bits >= 1 && code.bits <= 8, "[kernel.quantize] bits; expected 1 to 8, got {}",
          code.bits);
  }

  Grid choose(const float* x, int64_t n, float largest, Shorten how) const {
    if (range_) {
      const QuantizeLoops::Range range = loops_.range(x, n);
      // Where 255 / (half the range) would overflow, one value does.
      const bool flat = half_range(range.least, range.largest) < 0x1p-117f;
      return {.least = range.least, .largest = flat ? range.least : range.largest};
    }
    float last = largest;
    if (code_.grid == BlockCode::Grid::l2) {
      const float factor = power_below(largest, 1);
      last = static_cast<float>(std::sqrt(loops_.sums(x, factor, n).squares)) / factor;
    }
    // With one bit the distance of the two values is a multiple, too.
    const int most = std::max(levels_, 2);
    const float beyond = kMost / static_cast<float>(most);
    const float limit =
        std::bit_cast<float>(std::bit_cast<uint32_t>(beyond) & ~((1u << kDropped) - 1));
    return {.step = std::min(shorten(last / static_cast<float>(levels_), kKept, how), limit)};
  }

  QuantizeLoops::ToCodes to_codes(const Grid& grid) const {
    if (range_) {
      const float half = half_range(grid.least, grid.largest);
      return {.pre = 0.5f,
              .base = 0.5f * grid.least,
              .inverse = half == 0 ? 0 : static_cast<float>(top_) / half,
              .top = top_};
    }
    const float inverse = grid.step == 0 ? 0 : 1 / grid.step;
    if (code_.bits == 1)
      return {.pre = 0.5f, .base = -0.5f * grid.step, .inverse = inverse, .top = top_};
    return {.pre = 1, .base = 0, .inverse = inverse, .offset = levels_, .top = top_};
  }

  // Whether the codes are some that are made.
  template <bool kAdd>
  bool decode(float* out, const uint8_t* codes, int64_t n, const Grid& grid) const {
    if (range_) {
      (kAdd ? loops_.add_of_range : loops_.of_range)(
          out, codes, n, {grid.least, grid.largest, 1 / static_cast<float>(top_)});
      return true;
    }
    const QuantizeLoops::OfStep how =
        code_.bits == 1 ? QuantizeLoops::OfStep{0.5f, 2 * grid.step}
                        : QuantizeLoops::OfStep{static_cast<float>(levels_), grid.step};
    return (kAdd ? loops_.add_of_step : loops_.of_step)(out, codes, n, how) <= top_;
  }

  void put(std::byte* scales, int64_t block, const Grid& grid) const {
    if (!range_) return put_float(scales, block, grid.step);
    put_float(scales, 2 * block, grid.least);
    put_float(scales, 2 * block + 1, grid.largest);
  }
  // Whether it is one that is made.
  bool get(const std::byte* scales, int64_t block, Grid& grid) const {
    if (!range_) {
      grid.step = float_at(scales, block);
      return grid.step >= 0 && grid.step <= kMost / static_cast<float>(std::max(levels_, 2));
    }
    grid.least = float_at(scales, 2 * block);
    grid.largest = float_at(scales, 2 * block + 1);
    return grid.least >= -kMost && grid.least <= grid.largest && grid.largest <= kMost;
  }

 private:
  // Multiples up to 127 of a step with 17 bits have 24.
  static constexpr int kKept = 17, kDropped = kSignificand - kKept;
  static float half_range(float least, float largest) { return 0.5f * largest - 0.5f * least; }

  const BlockCode& code_;
  const QuantizeLoops& loops_;
  bool range_;
  int32_t levels_, top_;
};

}  // namespace

float shorten(float value, int bits, Shorten how) {
  if (value == 0) return 0;
  const int dropped = kSignificand - bits;
  if (dropped <= 0) return value;
  const uint32_t mask = (1u << dropped) - 1;
  uint32_t u = std::bit_cast<uint32_t>(std::max(value, 0x1p-126f));
  u += how == Shorten::up ? mask : (mask >> 1) + ((u >> dropped) & 1u);
  u = std::min(u, kInfinityBits - 1);
  return std::bit_cast<float>(u & ~mask);
}

float power_below(float magnitude, float most) {
  if (!(magnitude > 0 && magnitude <= kMost)) return 1;
  const int k = std::clamp(std::ilogb(most) - std::ilogb(magnitude), -126, 126);
  const float power = std::ldexp(1.0f, k);
  return double{magnitude} * power <= most ? power : std::ldexp(1.0f, std::max(k - 1, -126));
}

float largest_magnitude(const FedBack& in) {
  const QuantizeLoops& loops = quantize_loops();
  std::atomic<uint32_t> largest = 0;
  each_chunk(in.numel, kRoom, [&](int64_t at, int64_t n) {
    Room room;
    const uint32_t bits = make(loops, in, at, n, room).largest;
    uint32_t before = largest.load(std::memory_order_relaxed);
    while (before < bits &&
           !largest.compare_exchange_weak(before, bits, std::memory_order_relaxed)) {
    }
  });
  return std::bit_cast<float>(largest.load(std::memory_order_relaxed));
}

Magnitudes sum_magnitudes(const FedBack& in) {
  struct Part {
    double sum;
    int64_t zeros;
    uint32_t largest;
  };
  const QuantizeLoops& loops = quantize_loops();
  const Scratch<Part> parts((in.numel + kRoom - 1) / kRoom);
  each_chunk(in.numel, kRoom, [&](int64_t at, int64_t n) {
    Room room;
    const Made made = make(loops, in, at, n, room);
    // The sum of a room must not overflow.
    const float factor = made.largest > std::bit_cast<uint32_t>(0x1p100f) ? 0x1p-16f : 1;
    const QuantizeLoops::Sums sums = loops.sums(made.x, factor, n);
    parts[at / kRoom] = {sums.magnitudes / factor, sums.zeros, made.largest};
  });
  Magnitudes all;
  uint32_t largest = 0;
  for (int64_t i = 0; i * kRoom < in.numel; ++i) {
    all.sum += parts[i].sum;
    all.zeros += parts[i].zeros;
    largest = std::max(largest, parts[i].largest);
  }
  all.largest = std::bit_cast<float>(largest);
  return all;
}

bool encode_blocks(std::byte* scales, std::byte* codes, const FedBack& in, const BlockCode& code,
                   const Draws* draws) {
  const QuantizeLoops& loops = quantize_loops();
  const BlockCodec codec(code);
  const Drawn drawn(draws);
  // A step below the largest magnitude's would cut that off, and so not be unbiased.
  const Shorten how = draws == nullptr ? Shorten::nearest : Shorten::up;
  const auto encode = [&](int64_t at, int64_t n, const float* x, float largest, Rooms& rooms) {
    const Grid grid = codec.choose(x, n, largest, how);
    codec.put(scales, at / code.block, grid);
    QuantizeLoops::ToCodes to_codes = codec.to_codes(grid);
    to_codes.draws = drawn(at, n, rooms);
    put_codes(loops, codes, at, n, code.bits, x, to_codes, rooms);
  };
  const auto decode = [&](int64_t at, int64_t n, float* out, Rooms& rooms) {
    Grid grid;
    codec.get(scales, at / code.block, grid);
    codec.decode<false>(out, bytes_at(codes, at, code.bits, rooms), n, grid);
  };
  if (in_one_pass(in, code.block, encode, decode)) return true;
  std::memset(scales, 0, static_cast<size_t>(code.scale_bytes(in.numel)));
  std::memset(codes, 0, static_cast<size_t>(packed_bytes(in.numel, code.bits)));
  return false;
}

bool add_blocks(float* out, int64_t numel, const std::byte* scales, const std::byte* codes,
                const BlockCode& code) {
  const BlockCodec codec(code);
  std::atomic<bool> good = ends_with_zeros(codes, numel, code.bits);
  each_chunk(numel, code.block, [&](int64_t at, int64_t n) {
    Grid grid;
    uint8_t room[kRoom];
    if (!codec.get(scales, at / code.block, grid) ||
        !codec.decode<true>(out + at, get_codes(codes, at, n, code.bits, room), n, grid))
      good.store(false, std::memory_order_relaxed);
  });
  return good.load(std::memory_order_relaxed);
}

bool encode_steps(std::byte* codes, const FedBack& in, const StepCode& code, const Draws* draws) {
  const QuantizeLoops& loops = quantize_loops();
  const Drawn drawn(draws);
  QuantizeLoops::ToCodes how{
      .pre = 1, .base = 0, .inverse = code.inverse, .offset = code.most, .top = 2 * code.most};
  const auto encode = [&](int64_t at, int64_t n, const float* x, float /*largest*/, Rooms& rooms) {
    QuantizeLoops::ToCodes here = how;
    here.draws = drawn(at, n, rooms);
    put_codes(loops, codes, at, n, code.bits, x, here, rooms);
  };
  const auto decode = [&](int64_t at, int64_t n, float* out, Rooms& rooms) {
    loops.of_step(out, bytes_at(codes, at, code.bits, rooms), n,
                  {static_cast<float>(code.most), code.step});
  };
  if (in_one_pass(in, kChunk, encode, decode)) return true;
  each_chunk(in.numel, kChunk, [&](int64_t at, int64_t n) {  // the code of none is not 0
    static constexpr float kZeros[kChunk] = {};
    Rooms rooms;
    put_codes(loops, codes, at, n, code.bits, kZeros, how, rooms);
  });
  return false;
}

bool add_steps(float* out, int64_t numel, const std::byte* codes, const StepCode& code) {
  const QuantizeLoops& loops = quantize_loops();
  std::atomic<bool> good = ends_with_zeros(codes, numel, code.bits);
  each_chunk(numel, kChunk, [&](int64_t at, int64_t n) {
    uint8_t room[kRoom];
    if (loops.add_of_step(out + at, get_codes(codes, at, n, code.bits, room), n,
                          {static_cast<float>(code.most), code.step}) > 2 * code.most)
      good.store(false, std::memory_order_relaxed);
  });
  return good.load(std::memory_order_relaxed);
}

bool encode_signs(std::byte* codes, const FedBack& in, float magnitude) {
  const PackLoops& loops = pack_loops();
  const auto encode = [&](int64_t at, int64_t n, const float* x, float, Rooms&) {
    loops.pack_signs(bytes_of(codes) + at / 8, x, n);
  };
  const auto decode = [&](int64_t at, int64_t n, float* out, Rooms&) {
    loops.of_signs(out, bytes_of(codes) + at / 8, n, magnitude);
  };
  if (in_one_pass(in, kChunk, encode, decode)) return true;
  std::memset(codes, 0, static_cast<size_t>(packed_bytes(in.numel, 1)));
  return false;
}

bool add_signs(float* out, int64_t numel, const std::byte* codes, float magnitude) {
  const PackLoops& loops = pack_loops();
  each_chunk(numel, kChunk, [&](int64_t at, int64_t n) {
    loops.add_of_signs(out + at, bytes_of(codes) + at / 8, n, magnitude);
  });
  return ends_with_zeros(codes, numel, 1);
}

}  // namespace lockstep::kernel
