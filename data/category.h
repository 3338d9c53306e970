#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep::data {

/// Note [From categories to rows]
/// Every categorical column has a table of its own, so one string in two columns is two rows and no
/// salt is needed. A hexadecimal category (Criteo's are 32-bit hashes already) is the unsigned
/// number it writes, a row that is written as one is itself; any other is the xxHash64, seed 0, of
/// its bytes, which count as 0..255 whether `char` is signed or not. Either goes to row `number mod
/// rows`. An empty field is a missing value and always row 0, which it shares with what else falls
/// there.

/// xxHash64, seed 0.
uint64_t category_hash(std::string_view bytes);

/// In 0 … rows - 1, as unsigned numbers. 1 <= rows <= 2^31 - 1 is the caller's to check.
inline int32_t category_row(uint64_t number, int64_t rows) {
  return static_cast<int32_t>(number % static_cast<uint64_t>(rows));
}
/// Of the string; "" is row 0.
inline int32_t category_row(std::string_view bytes, int64_t rows) {
  return bytes.empty() ? 0 : category_row(category_hash(bytes), rows);
}

}  // namespace lockstep::data
