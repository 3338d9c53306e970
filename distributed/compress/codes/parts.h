#pragma once
#include "core/kernels/quantize.h"
#include "distributed/compress/bad_code.h"
#include "distributed/compress/compressor.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string_view>

/// What the dense codes share: floats and sizes in bytes from elsewhere.
namespace lockstep::distributed {

/// Elements [begin, end) of what is to be encoded.
inline kernel::FedBack fed_back(const ToEncode& in, int64_t begin, int64_t end) {
  return {.values = in.values.data() + begin,
          .numel = end - begin,
          .residual = in.residual.empty() ? nullptr : in.residual.data() + begin,
          .next = in.next.empty() ? nullptr : in.next.data() + begin,
          .scale = in.scale};
}
inline kernel::FedBack fed_back(const ToEncode& in) { return fed_back(in, 0, in.pieces.numel()); }
/// Random numbers of elements from `begin` on.
inline kernel::Draws draws_of(const ToEncode& in, int64_t begin = 0) {
  return {in.pieces.seed, in.key, in.pieces.position + static_cast<uint64_t>(begin)};
}

inline float float_at(std::span<const std::byte> bytes, size_t i) {
  float v;
  std::memcpy(&v, bytes.data() + i * sizeof v, sizeof v);
  return v;
}
inline void put_float(std::span<std::byte> bytes, size_t i, float v) {
  std::memcpy(bytes.data() + i * sizeof v, &v, sizeof v);
}

/// The bytes that codes of `bits` bits take, every piece beginning with one of its own.
inline int64_t packed_bytes(const Pieces& pieces, int bits) {
  int64_t bytes = 0;
  each_piece(pieces, [&](size_t, int64_t begin, int64_t end) {
    bytes += kernel::packed_bytes(end - begin, bits);
  });
  return bytes;
}
/// Whole bytes of codes as payload and what the last bits of pieces leave; the rest is scales.
inline CodeBytes bytes_of(const Pieces& pieces, int bits, int64_t total) {
  const int64_t packed = packed_bytes(pieces, bits), payload = pieces.numel() * bits / 8;
  return {.payload = payload, .scales = total - packed, .padding = packed - payload};
}

inline void expect_size(std::string_view name, std::span<const std::byte> code, int64_t expected) {
  if (static_cast<int64_t>(code.size()) != expected)
    throw BadCode(fmt::format("{} code; expected {} bytes, got {}", name, expected, code.size()));
}
inline void expect_good(std::string_view name, bool good) {
  if (!good) throw BadCode(fmt::format("{} code; a scale or a code that no rank writes", name));
}
/// A scale from elsewhere: finite, not negative.
inline float scale_at(std::string_view name, std::span<const std::byte> code, size_t i) {
  const float scale = float_at(code, i);
  expect_good(name, std::isfinite(scale) && !std::signbit(scale));
  return scale;
}

}  // namespace lockstep::distributed
