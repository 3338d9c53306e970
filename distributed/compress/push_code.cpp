#include "distributed/compress/push_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "distributed/compress/frame.h"
#include "distributed/compress/range_plan.h"

namespace lockstep::distributed {

// No run gets that far, and no sum with a number of elements overflows.
constexpr uint64_t kMostPosition = uint64_t{1} << 62;

PushCode::PushCode(const std::string& spec, uint64_t seed, const optim::FlatView& all)
    : code_(make_compressor(spec)),
      id_(code_id(spec)),
      seed_(seed),
      numel_(all.numel()),
      ends_(piece_ends(all, code_->scope())) {}

void PushCode::decode(std::span<const std::byte> frame, std::span<float> out) const {
  FrameHeader expected{.code = id_, .numel = static_cast<uint64_t>(numel_), .seed = seed_};
  if (code_->shares_amplitudes()) expected.amplitudes = static_cast<uint32_t>(ends_.size());
  FrameHeader sent;
  if (frame.size() >= sizeof sent) std::memcpy(&sent, frame.data(), sizeof sent);
  const auto numel = static_cast<uint64_t>(std::max<int64_t>(numel_, 1));
  if (sent.position % numel != 0 || sent.position > kMostPosition)
    throw BadCode("its position is not where a window begins");
  expected.position = sent.position;
  const Frame read = read_frame(frame, expected);
  for (const float a : read.amplitudes)
    if (!std::isfinite(a) || std::signbit(a)) throw BadCode(fmt::format("an amplitude is {}", a));
  const Pieces pieces{.ends = ends_,
                      .window = static_cast<int64_t>(sent.position / numel),
                      .seed = seed_,
                      .position = sent.position};
  std::ranges::fill(out, 0.0f);
  code_->decode_add(read.code, pieces, read.amplitudes, out);
}

}  // namespace lockstep::distributed
