#pragma once
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <span>

#include "distributed/compress/bad_code.h"

/// Ascending positions in bytes: see SparseBlock.
namespace lockstep::distributed {

enum class PositionCode : uint8_t { all, words, gaps, bits };

inline constexpr uint16_t kFurther = 0xffff;  ///< of gaps: as many, and the next number

/// Bytes that count of n positions take at most.
inline int64_t position_bytes(PositionCode code, int64_t n, int64_t count) {
  switch (code) {
    case PositionCode::all:
      break;
    case PositionCode::words:
      return 4 * count;
    case PositionCode::gaps:
      return 2 * (count + (n - count) / kFurther);
    case PositionCode::bits:
      return (n + 7) / 8;
  }
  return 0;
}

/// The one that takes the least.
inline PositionCode position_code(int64_t n, int64_t count) {
  if (count == n) return PositionCode::all;
  PositionCode best = PositionCode::words;
  for (PositionCode other : {PositionCode::gaps, PositionCode::bits})
    if (position_bytes(other, n, count) < position_bytes(best, n, count)) best = other;
  return best;
}

/// Returns the bytes written.
inline int64_t write_positions(PositionCode code, std::span<const int32_t> positions, int64_t first,
                               int64_t n, std::byte* out) {
  std::byte* const begin = out;
  const auto put = [&](auto number) {
    std::memcpy(out, &number, sizeof number);
    out += sizeof number;
  };
  switch (code) {
    case PositionCode::all:
      break;
    case PositionCode::words:
      for (const int32_t p : positions) put(static_cast<uint32_t>(p - first));
      break;
    case PositionCode::gaps:
      for (int64_t next = first; const int32_t p : positions) {
        int64_t gap = p - next;
        for (; gap >= kFurther; gap -= kFurther) put(kFurther);
        put(static_cast<uint16_t>(gap));
        next = int64_t{p} + 1;
      }
      break;
    case PositionCode::bits:
      out += position_bytes(code, n, 0);
      std::memset(begin, 0, static_cast<size_t>(out - begin));
      for (const int32_t p : positions)
        begin[(p - first) / 8] |= std::byte{1} << static_cast<int>((p - first) % 8);
      break;
  }
  return out - begin;
}

/// Calls f(number of the position, position) for all of them, ascending and below n. BadCode where
/// they are not, and for bytes behind them that are not zero.
template <class F>
void read_positions(PositionCode code, std::span<const std::byte> bytes, int64_t count, int64_t n,
                    F&& f) {
  const std::byte* in = bytes.data();
  const std::byte* const end = in + bytes.size();
  const auto get = [&]<class T>(T number) {
    if (end - in < static_cast<int64_t>(sizeof number)) throw BadCode("its positions end too soon");
    std::memcpy(&number, in, sizeof number);
    in += sizeof number;
    return int64_t{number};
  };
  const auto out_of_range = [&](int64_t at) {
    throw BadCode(fmt::format("a position is {} of {} elements", at, n));
  };
  switch (code) {
    case PositionCode::all:
      for (int64_t i = 0; i < n; ++i) f(i, i);
      break;
    case PositionCode::words: {
      int64_t last = -1;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = get(uint32_t{});
        if (at >= n) out_of_range(at);
        if (at <= last)
          throw BadCode(fmt::format("position {} comes after {}: not ascending", at, last));
        f(i, at);
        last = at;
      }
      break;
    }
    case PositionCode::gaps: {
      int64_t at = 0;
      for (int64_t i = 0; i < count; ++i, ++at) {
        int64_t gap;
        do {
          at += gap = get(uint16_t{});
          if (at >= n) out_of_range(at);
        } while (gap == kFurther);
        f(i, at);
      }
      break;
    }
    case PositionCode::bits: {
      int64_t i = 0;
      for (int64_t at = 0; at < n; at += 8)
        for (auto byte = static_cast<unsigned>(get(uint8_t{})); byte != 0; byte &= byte - 1) {
          const int64_t bit = at + std::countr_zero(byte);
          if (bit >= n) out_of_range(bit);
          if (i == count) throw BadCode("it has more positions than values");
          f(i++, bit);
        }
      if (i != count) throw BadCode(fmt::format("it has {} positions for {} values", i, count));
      break;
    }
  }
  for (; in != end; ++in)
    if (*in != std::byte{0}) throw BadCode("the bytes behind it are not zero");
}

}  // namespace lockstep::distributed
