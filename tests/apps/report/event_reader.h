#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// Reads event files as TensorBoard does, with nothing of the writer's.
namespace lockstep::test {

/// CRC-32C a bit at a time, from its definition.
inline uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool low = ((crc >> 0) ^ (static_cast<unsigned char>(byte) >> bit)) & 1;
      crc = (crc >> 1) ^ (low ? 0x82F63B78u : 0u);
    }
  return ~crc;
}

template <class T>
T little_endian(std::string_view bytes) {
  if (bytes.size() < sizeof(T)) throw std::runtime_error("cut off");
  T value;  // on the little-endian machines we build for
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// The fields of a protocol-buffer message: number → each value, integers and fixed ones as bits.
struct Message {
  std::map<uint64_t, std::vector<uint64_t>> numbers;
  std::map<uint64_t, std::vector<std::string>> texts;

  explicit Message(std::string_view bytes) {
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        if (bytes.empty() || shift > 63) throw std::runtime_error("bad varint");
        const auto byte = static_cast<unsigned char>(bytes[0]);
        bytes.remove_prefix(1);
        value |= uint64_t{byte & 0x7Fu} << shift;
        if (byte < 0x80) return value;
      }
    };
    const auto take = [&](size_t size) {
      if (size > bytes.size()) throw std::runtime_error("cut off");
      const std::string_view part = bytes.substr(0, size);
      bytes.remove_prefix(size);
      return part;
    };
    while (!bytes.empty()) {
      const uint64_t key = varint();
      switch (key & 7) {
        case 0:
          numbers[key >> 3].push_back(varint());
          break;
        case 1:
          numbers[key >> 3].push_back(little_endian<uint64_t>(take(8)));
          break;
        case 2:
          texts[key >> 3].emplace_back(take(varint()));
          break;
        case 5:
          numbers[key >> 3].push_back(little_endian<uint32_t>(take(4)));
          break;
        default:
          throw std::runtime_error("unknown wire type");
      }
    }
  }
};

struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  bool restart = false;
  std::map<std::string, float> values;
};

/// Throws where a length, a CRC or a field is wrong.
inline std::vector<ReadEvent> read_events(std::string_view file) {
  const auto masked = [](std::string_view bytes) {
    const uint32_t crc = slow_crc32c(bytes);
    return static_cast<uint32_t>((crc >> 15 | crc << 17) + 0xA282EAD8u);
  };
  std::vector<ReadEvent> events;
  while (!file.empty()) {
    const auto length = little_endian<uint64_t>(file);
    if (little_endian<uint32_t>(file.substr(8)) != masked(file.substr(0, 8)) ||
        length + 16 > file.size() ||
        little_endian<uint32_t>(file.substr(12 + length)) != masked(file.substr(12, length)))
      throw std::runtime_error("bad record");
    const Message message(file.substr(12, length));
    file.remove_prefix(length + 16);
    ReadEvent& event = events.emplace_back();
    event.wall_time = std::bit_cast<double>(message.numbers.at(1).at(0));
    if (message.numbers.contains(2)) event.step = static_cast<int64_t>(message.numbers.at(2).at(0));
    if (message.texts.contains(3)) event.version = message.texts.at(3).at(0);
    if (message.texts.contains(7))
      event.restart = Message(message.texts.at(7).at(0)).numbers.at(1).at(0) == 1;
    if (!message.texts.contains(5)) continue;
    const Message summary(message.texts.at(5).at(0));
    for (const std::string& bytes : summary.texts.at(1)) {
      const Message value(bytes);
      event.values[value.texts.at(1).at(0)] =
          std::bit_cast<float>(static_cast<uint32_t>(value.numbers.at(2).at(0)));
    }
  }
  return events;
}

/// The values under a tag that a viewer shows of files in turn: a restart drops its own and later
/// steps of what came before.
inline std::map<int64_t, float> shown(const std::vector<std::string>& files,
                                      const std::string& tag) {
  std::map<int64_t, float> values;
  for (const std::string& file : files)
    for (const ReadEvent& event : read_events(file)) {
      if (event.restart) values.erase(values.lower_bound(event.step), values.end());
      if (const auto found = event.values.find(tag); found != event.values.end())
        values[event.step] = found->second;
    }
  return values;
}

}  // namespace lockstep::test
