// Every rank gets the code of every other and adds them up, its own included, in the order of
// ranks: the same bits everywhere. (n-1) codes come to a rank.
#include <algorithm>

#include "core/kernels/elementwise.h"
#include "distributed/compress/ways/compressed_sum.h"

namespace lockstep::distributed {
namespace {

class Gathered final : public CompressedSum {
 public:
  Gathered(std::shared_ptr<Compression> compression, RangePlan& plan, const optim::FlatView& range,
           OpTag tag)
      : CompressedSum(compression, plan, range, tag, stages(compression->code())) {}

 private:
  // [amplitudes] [sizes] frames
  static int stages(const Compressor& code) {
    return 1 + (code.shares_amplitudes() ? 1 : 0) + (code.fixed_size() ? 0 : 1);
  }

  WorkPtr post_stage(int stage) override {
    if (stage == 0 && code().shares_amplitudes()) return post_amplitudes(plan().ends());
    if (!frame_.defined()) {
      encode();
      if (!code().fixed_size()) return post_sizes();
    }
    return post_frames();
  }

  void encode() {
    const Stopwatch timed(traffic().encode_s);
    const int64_t head = frame_head(0);
    frame_ = Tensor::empty({frame_bytes(0, code().max_bytes(whole()))}, DType::u8);
    const std::span<std::byte> bytes = bytes_of(frame_);
    ToEncode in = compression().input(plan(), values());
    in.amplitudes = amplitudes();
    const Encoded encoded = code().encode(in, bytes.subspan(static_cast<size_t>(head)));
    Compression::settle(in, encoded);
    bytes_ = write_frame(compression().header(whole(), encoded), {}, bytes);
    count(encoded, bytes_);
    if (watched()) look(bytes);
  }

  // What a receiver will see of this rank's gradient.
  void look(std::span<const std::byte> bytes) {
    const Tensor seen = zeros({whole().numel()});
    const Frame frame =
        read_frame(bytes.first(static_cast<size_t>(bytes_)), compression().expected(whole()));
    code().decode_add(frame.code, whole(), amplitudes(),
                      {seen.mutable_data<float>(), static_cast<size_t>(seen.numel())});
    show_wire(seen);
  }

  WorkPtr post_sizes() {
    const Tensor mine = Tensor::empty({1}, DType::i64);
    mine.mutable_data<int64_t>()[0] = bytes_;
    sizes_ = Tensor::empty({comm().size()}, DType::i64);
    return comm().all_gather_v(sizes_, mine, {}, tag());
  }

  WorkPtr post_frames() {
    const Tensor sent = frame_.slice(0, bytes_);
    int64_t all = bytes_ * comm().size();
    std::span<const int64_t> counts;
    if (sizes_.defined()) {
      counts = {sizes_.data<int64_t>(), static_cast<size_t>(comm().size())};
      all = 0;
      for (int r = 0; r < comm().size(); ++r) {
        const int64_t most = frame_bytes(0, code().max_bytes(whole()));
        compression().read_from(r, tag(), [&] {
          if (counts[r] < 0 || counts[r] > most) throw BadCode("its size is out of range");
        });
        all += counts[r];
      }
    }
    frames_ = Tensor::empty({all}, DType::u8);
    return comm().all_gather_v(frames_, sent, counts, tag());
  }

  void decode() override {
    const std::span<float> sum = begin_sum();
    std::span<const std::byte> rest = bytes_of(frames_);
    for (int r = 0; r < comm().size(); ++r) {
      const auto size = static_cast<size_t>(sizes_.defined() ? sizes_.data<int64_t>()[r] : bytes_);
      compression().read_from(r, tag(), [&] {
        const Frame frame = read_frame(rest.first(size), compression().expected(whole()));
        if ((frame.header.flags & FrameHeader::kNotFinite) != 0) note_overflow();
        code().decode_add(frame.code, whole(), amplitudes(), sum);
      });
      rest = rest.subspan(size);
    }
    frame_ = frames_ = sizes_ = {};
    end_sum();
  }

  Tensor frame_, frames_;  // u8: of this rank, of all
  int64_t bytes_ = 0;      // of frame_
  Tensor sizes_;           // i64, by rank; where they differ
};

}  // namespace

WorkPtr begin_gathered(std::shared_ptr<Compression> compression, RangePlan& plan,
                       const optim::FlatView& range, OpTag tag) {
  const auto queue = compression->queue();
  auto sum = make_pooled<Gathered>(std::move(compression), plan, range, tag);
  queue->start(sum);
  return sum;
}

}  // namespace lockstep::distributed
