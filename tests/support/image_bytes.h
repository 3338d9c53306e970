#pragma once
#include "core/random.h"

#include <cstdint>
#include <string>
#include <vector>

/// What files of images hold.
namespace lockstep::test {

/// Bytes that can be told apart.
inline std::string noise_bytes(int64_t count, uint32_t key = 0) {
  const Random random(7, RandomStream::tests, key);
  std::string bytes;
  for (int64_t i = 0; i < count; ++i)
    bytes += static_cast<char>(random.word(static_cast<uint64_t>(i)));
  return bytes;
}

inline std::string idx_bytes(const std::vector<uint32_t>& shape, const std::string& elements) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (const uint32_t extent : shape)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift);
  return bytes + elements;
}

inline std::string cifar_record(uint8_t label, int64_t number) {
  return static_cast<char>(label) + noise_bytes(3072, static_cast<uint32_t>(number));
}

}  // namespace lockstep::test
