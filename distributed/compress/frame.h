#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "distributed/compress/bad_code.h"

namespace lockstep::distributed {

/// What goes before a code on the wire, so that whoever gets it can tell what it is.
struct FrameHeader {
  static constexpr uint32_t kMagic = 0x4b43534c;  // "LSCK"
  static constexpr uint32_t kNotFinite = 1;

  uint32_t magic = kMagic;
  uint32_t code = 0;        ///< which code it is: code_id of its spec
  uint32_t flags = 0;       ///< kNotFinite: the code is that of zeros, the step is to be skipped
  uint32_t amplitudes = 0;  ///< how many f32 stand between this and the code
  uint64_t numel = 0;       ///< elements that are encoded
  uint64_t bytes = 0;       ///< of the code
  uint64_t seed = 0, position = 0;  ///< of random numbers: see Pieces
};
static_assert(sizeof(FrameHeader) == 48);

/// Frames are cut off at multiples of as much, and so are the parts of one.
inline constexpr int64_t kFrameAlign = 16;

/// Bytes of a frame around a code of `bytes`.
int64_t frame_bytes(int64_t amplitudes, int64_t bytes);
/// Where a code begins within its frame.
int64_t frame_head(int64_t amplitudes);

/// Writes header and amplitudes before the code that lies in the frame already, and zeros behind
/// it. `frame` has frame_bytes() or more; returns how many are used.
int64_t write_frame(const FrameHeader& header, std::span<const float> amplitudes,
                    std::span<std::byte> frame);

struct Frame {
  FrameHeader header;
  std::span<const float> amplitudes;
  std::span<const std::byte> code;
};
/// Checks a frame that came from elsewhere against what it should be: its code, numel, seed and
/// position, and as many amplitudes. BadCode says what is wrong.
Frame read_frame(std::span<const std::byte> bytes, const FrameHeader& expected);

/// Of a spec, as all ranks wrote it.
uint32_t code_id(std::string_view spec);

}  // namespace lockstep::distributed
