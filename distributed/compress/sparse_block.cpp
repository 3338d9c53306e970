#include "distributed/compress/sparse_block.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/spec.h"
#include "distributed/compress/sparse_positions.h"

namespace lockstep::distributed {
namespace {

constexpr int64_t kCountBytes = sizeof(uint32_t);

template <class T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// How values of each kind are stored: bits of a value, and the value of bits.
struct Fp32 {
  using Bits = uint32_t;
  static Bits bits(float v, float) { return std::bit_cast<Bits>(v); }
  static float value(Bits b, float) { return std::bit_cast<float>(b); }
};
struct Bf16 {
  using Bits = uint16_t;
  static Bits bits(float v, float) {
    const Bits b = bfloat16_bits(v);
    return (b & 0x7fffu) == 0x7f80u ? static_cast<Bits>(b - 1) : b;  // the largest rounds up
  }
  static float value(Bits b, float) { return bfloat16_value(b); }
};
struct Fp16 {
  using Bits = uint16_t;
  static Bits bits(float v, float step) {
    const Bits b = half_bits(v / step);
    return std::isfinite(value(b, step)) ? b : static_cast<Bits>(b - 1);
  }
  static float value(Bits b, float step) { return half_value(b) * step; }
};
struct Int8 {
  using Bits = int8_t;
  static Bits bits(float v, float step) {
    if (step == 0) return 0;
    return static_cast<Bits>(std::clamp(std::nearbyint(v / step), -127.0f, 127.0f));
  }
  static float value(Bits b, float step) {
    return b == -128 ? NAN : static_cast<float>(b) * step;  // which no value has
  }
};

template <class F>
auto with_values(SparseBlock::Values values, F f) {
  switch (values) {
    case SparseBlock::Values::fp16:
      return f(Fp16{});
    case SparseBlock::Values::bf16:
      return f(Bf16{});
    case SparseBlock::Values::int8:
      return f(Int8{});
    case SparseBlock::Values::fp32:
      break;
  }
  return f(Fp32{});
}

constexpr int kHalfExponent = 14;  // the largest of a piece is in [2^14, 2^15)

bool is_step(SparseBlock::Values values, float step) {
  if (values == SparseBlock::Values::int8)
    return step >= 0 && !std::signbit(step) && std::isfinite(127 * step);
  int exponent;
  return std::isnormal(step) && std::frexp(step, &exponent) == 0.5f &&
         exponent - 1 <= 127 - kHalfExponent;
}

SparseBlock::Values values_of(const Spec& spec) {
  const std::string name = spec.text("values", "fp32", {"fp32", "fp16", "bf16", "int8"});
  return name == "fp16"   ? SparseBlock::Values::fp16
         : name == "bf16" ? SparseBlock::Values::bf16
         : name == "int8" ? SparseBlock::Values::int8
                          : SparseBlock::Values::fp32;
}

}  // namespace

SparseBlock::SparseBlock(const Spec& spec) : SparseBlock(values_of(spec)) {}

int64_t SparseBlock::value_bytes() const {
  return with_values(values_,
                     [](auto kind) -> int64_t { return sizeof(typename decltype(kind)::Bits); });
}

int64_t SparseBlock::head(int64_t pieces, int64_t count) const {
  return kCountBytes + (has_steps() ? 4 * pieces : 0) + value_bytes() * count;
}

int64_t SparseBlock::bytes(int64_t n, int64_t pieces, int64_t count) const {
  return head(pieces, count) + position_bytes(position_code(n, count), n, count);
}

int64_t SparseBlock::most_bytes(int64_t n, int64_t pieces, int64_t most) const {
  // Without positions all elements may take less than all but one.
  return most < n || n == 0 ? bytes(n, pieces, most)
                            : std::max(bytes(n, pieces, n), bytes(n, pieces, n - 1));
}

float SparseBlock::step(float largest) const {
  if (values_ == Values::fp16) {
    if (largest == 0) return 1;
    return std::ldexp(1.0f, std::max(std::ilogb(largest) - kHalfExponent, -126));
  }
  if (values_ != Values::int8) return 0;
  float step = largest / 127;
  while (!std::isfinite(127 * step)) step = std::nextafter(step, 0.0f);
  return step;
}

void SparseBlock::round(std::span<float> values, float step, std::span<float> lost) const {
  with_values(values_, [&](auto kind) {
    for (size_t i = 0; i < values.size(); ++i) {
      const float seen = kind.value(kind.bits(values[i], step), step);
      if (!lost.empty()) lost[i] = values[i] - seen;
      values[i] = seen;
    }
  });
}

CodeBytes SparseBlock::write(const SparseElements& elements, std::span<const int64_t> ends,
                             int64_t room, std::span<std::byte> code) const {
  const auto count = static_cast<int64_t>(elements.positions.size()),
             pieces = static_cast<int64_t>(ends.size()), n = ends.empty() ? 0 : ends.back();
  std::byte* out = code.data();
  const auto count32 = static_cast<uint32_t>(count);
  std::memcpy(out, &count32, kCountBytes);
  out += kCountBytes;
  CodeBytes bytes;
  if (has_steps()) {
    bytes.scales = 4 * pieces;
    if (pieces > 0) std::memcpy(out, elements.steps.data(), static_cast<size_t>(bytes.scales));
    out += bytes.scales;
  }
  bytes.payload = count * value_bytes();
  with_values(values_, [&](auto kind) {
    for (int64_t i = 0, p = 0; i < count; ++i) {
      while (elements.positions[static_cast<size_t>(i)] - elements.first >=
             ends[static_cast<size_t>(p)])
        ++p;
      const float step = has_steps() ? elements.steps[static_cast<size_t>(p)] : 0;
      const auto bits = kind.bits(elements.values[static_cast<size_t>(i)], step);
      std::memcpy(out + i * static_cast<int64_t>(sizeof bits), &bits, sizeof bits);
    }
  });
  out += bytes.payload;
  const int64_t positions =
      write_positions(position_code(n, count), elements.positions, elements.first, n, out);
  out += positions;
  bytes.indices = kCountBytes + positions;
  if (room > 0) {
    bytes.padding = room - (out - code.data());
    std::memset(out, 0, static_cast<size_t>(bytes.padding));
  }
  return bytes;
}

void SparseBlock::read_add(std::span<const std::byte> code, std::span<const int64_t> ends,
                           std::span<float> out) const {
  const auto size = static_cast<int64_t>(code.size()), n = static_cast<int64_t>(out.size()),
             pieces = static_cast<int64_t>(ends.size());
  if (size < kCountBytes) throw BadCode(fmt::format("it has {} bytes and no count", size));
  const int64_t count = get<uint32_t>(code.data());
  if (count > n) throw BadCode(fmt::format("it counts {} of {} elements", count, n));
  const PositionCode positions = position_code(n, count);
  const int64_t most = bytes(n, pieces, count),
                least = positions == PositionCode::gaps ? head(pieces, count) + 2 * count : most;
  if (size < least || size > most)
    throw BadCode(fmt::format("it has {} bytes; {} of {} elements take {} to {}", size, count, n,
                              least, most));
  with_values(values_, [&](auto kind) { read_values<decltype(kind)>(code, ends, out, count); });
}

template <class Value>
void SparseBlock::read_values(std::span<const std::byte> code, std::span<const int64_t> ends,
                              std::span<float> out, int64_t count) const {
  using Bits = typename Value::Bits;
  const auto n = static_cast<int64_t>(out.size()), pieces = static_cast<int64_t>(ends.size());
  const std::byte* const steps = code.data() + kCountBytes;
  const std::byte* const values = steps + (has_steps() ? 4 * pieces : 0);
  if (has_steps())
    for (int64_t p = 0; p < pieces; ++p)
      if (!is_step(values_, get<float>(steps + 4 * p)))
        throw BadCode(fmt::format("the step of piece {} is {}", p, get<float>(steps + 4 * p)));
  int64_t piece = 0;
  float step = has_steps() && pieces > 0 ? get<float>(steps) : 0;
  read_positions(position_code(n, count), code.subspan(static_cast<size_t>(head(pieces, count))),
                 count, n, [&](int64_t i, int64_t at) {
                   if constexpr (std::is_same_v<Value, Fp16> || std::is_same_v<Value, Int8>)
                     while (at >= ends[static_cast<size_t>(piece)])
                       step = get<float>(steps + 4 * ++piece);
                   const Bits bits = get<Bits>(values + i * static_cast<int64_t>(sizeof(Bits)));
                   const float value = Value::value(bits, step);
                   if (!std::isfinite(value))
                     throw BadCode(fmt::format("the value at {} is {}", at, value));
                   out[static_cast<size_t>(at)] += value;
                 });
}

}  // namespace lockstep::distributed
