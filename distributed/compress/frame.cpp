#include "distributed/compress/frame.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace lockstep::distributed {
namespace {

constexpr int64_t aligned(int64_t bytes) {
  return (bytes + kFrameAlign - 1) / kFrameAlign * kFrameAlign;
}

template <class T>
void expect_equal(const char* what, T got, T expected) {
  if (got != expected) throw BadCode(fmt::format("its {} is {}, expected {}", what, got, expected));
}

}  // namespace

int64_t frame_head(int64_t amplitudes) {
  return aligned(static_cast<int64_t>(sizeof(FrameHeader)) +
                 amplitudes * static_cast<int64_t>(sizeof(float)));
}

int64_t frame_bytes(int64_t amplitudes, int64_t bytes) {
  return frame_head(amplitudes) + aligned(bytes);
}

int64_t write_frame(const FrameHeader& header, std::span<const float> amplitudes,
                    std::span<std::byte> frame) {
  const auto bytes = static_cast<int64_t>(header.bytes);
  const int64_t head = frame_head(header.amplitudes), all = frame_bytes(header.amplitudes, bytes);
  std::byte* at = frame.data();
  std::fill(at, at + head, std::byte{0});
  std::memcpy(at, &header, sizeof header);
  if (!amplitudes.empty())
    std::memcpy(at + sizeof header, amplitudes.data(), amplitudes.size_bytes());
  std::fill(at + head + bytes, at + all, std::byte{0});
  return all;
}

Frame read_frame(std::span<const std::byte> bytes, const FrameHeader& expected) {
  Frame frame;
  if (bytes.size() < sizeof(FrameHeader))
    throw BadCode(fmt::format("it has {} bytes, less than a header's", bytes.size()));
  std::memcpy(&frame.header, bytes.data(), sizeof(FrameHeader));
  const FrameHeader& header = frame.header;
  expect_equal("magic number", header.magic, expected.magic);
  expect_equal("code", header.code, expected.code);
  expect_equal("number of elements", header.numel, expected.numel);
  expect_equal("number of amplitudes", header.amplitudes, expected.amplitudes);
  expect_equal("seed", header.seed, expected.seed);
  expect_equal("position", header.position, expected.position);
  if ((header.flags & ~FrameHeader::kNotFinite) != 0)
    throw BadCode(fmt::format("its flags are {:#x}", header.flags));
  const auto head = static_cast<uint64_t>(frame_head(header.amplitudes));
  if (bytes.size() < head || header.bytes > bytes.size() - head ||
      bytes.size() !=
          static_cast<uint64_t>(frame_bytes(header.amplitudes, static_cast<int64_t>(header.bytes))))
    throw BadCode(fmt::format("it has {} bytes, of which its header says that {} are code",
                              bytes.size(), header.bytes));
  frame.amplitudes = {reinterpret_cast<const float*>(bytes.data() + sizeof(FrameHeader)),
                      header.amplitudes};
  frame.code = bytes.subspan(head, header.bytes);
  return frame;
}

uint32_t code_id(std::string_view spec) {
  return static_cast<uint32_t>(XXH3_64bits(spec.data(), spec.size()));
}

}  // namespace lockstep::distributed
