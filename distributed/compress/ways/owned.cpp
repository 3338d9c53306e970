// Every rank owns a part of the range: it gets the others' codes of it, adds them up in f32, in the
// order of ranks, and sends the code of the sum to all. About two codes come to a rank, however
// many ranks there are. What a sum's code loses the owner keeps.
#include <algorithm>
#include <cstring>

#include "core/kernels/elementwise.h"
#include "distributed/compress/ways/compressed_sum.h"

namespace lockstep::distributed {
namespace {

class Owned final : public CompressedSum {
 public:
  Owned(std::shared_ptr<Compression> compression, RangePlan& plan, const optim::FlatView& range,
        OpTag tag)
      : CompressedSum(compression, plan, range, tag, stages(compression->code())) {}

 private:
  // [amplitudes] [sizes] parts [sizes] sums
  static int stages(const Compressor& code) {
    return 2 + (code.shares_amplitudes() ? 1 : 0) + (code.fixed_parts() ? 0 : 2);
  }
  int ranks() const { return comm().size(); }
  bool sized() const { return !code().fixed_parts(); }

  WorkPtr post_stage(int stage) override {
    if (stage == 0 && code().shares_amplitudes()) return post_amplitudes(plan().cut_ends());
    if (!parts_.defined()) {
      encode_parts();
      if (sized()) return post_part_sizes();
    }
    if (!received_.defined()) return post_parts();
    if (!sum_.defined()) {
      add_up();
      if (sized()) return post_sum_sizes();
    }
    return post_sums();
  }

  // A rank's share of the amplitudes, which are by piece of parts.
  std::span<const float> amplitudes_of(int rank) {
    const std::span<const float> all = amplitudes();
    if (all.empty()) return all;
    size_t begin = 0;
    for (int r = 0; r < rank; ++r) begin += plan().owners()[static_cast<size_t>(r)].ends.size();
    return all.subspan(begin, plan().owners()[static_cast<size_t>(rank)].ends.size());
  }
  int64_t* counts(Tensor& sizes) const {
    if (!sizes.defined()) sizes = Tensor::empty({ranks()}, DType::i64);
    return sizes.mutable_data<int64_t>();
  }
  std::span<const int64_t> read(const Tensor& sizes) const {
    return {sizes.data<int64_t>(), static_cast<size_t>(ranks())};
  }
  Part part_of(int rank) const {
    const RangePlan::Owned& owned = plan().owners()[static_cast<size_t>(rank)];
    return {.begin = owned.begin, .end = owned.end, .pieces = part(rank)};
  }
  int64_t room_of_part(int rank) const {
    return frame_bytes(0, code().max_part_bytes(whole(), part_of(rank)));
  }
  int64_t room_of_sum(int rank) const {
    return frame_bytes(0, code().max_sum_bytes(part(rank), ranks()));
  }

  void encode_parts() {
    const Stopwatch timed(traffic().encode_s);
    const int64_t head = frame_head(0);
    std::vector<Part>& parts = compression().scratch_parts();
    parts.clear();
    int64_t room = 0;
    for (int r = 0; r < ranks(); ++r) {
      Part its = part_of(r);
      its.code_begin = room + head;
      its.code_bytes = code().max_part_bytes(whole(), its);
      room += frame_bytes(0, its.code_bytes);
      parts.push_back(its);
    }
    parts_ = Tensor::empty({room}, DType::u8);
    const std::span<std::byte> bytes = bytes_of(parts_);
    ToEncode in = compression().input(plan(), values());
    in.amplitudes = amplitudes();
    const Encoded encoded = code().encode_parts(in, parts, bytes);
    Compression::settle(in, encoded);
    // Frames around the codes, which move together where they took less than their room.
    int64_t* sizes = counts(send_);
    int64_t at = 0;
    for (int r = 0; r < ranks(); ++r) {
      const Part& its = parts[static_cast<size_t>(r)];
      const int64_t begin = its.code_begin - head;
      FrameHeader header = compression().header(its.pieces, encoded);
      header.bytes = static_cast<uint64_t>(its.code_bytes);
      sizes[r] = frame_bytes(0, its.code_bytes);
      if (at != begin)
        std::memmove(bytes.data() + at, bytes.data() + begin,
                     static_cast<size_t>(head + its.code_bytes));
      write_frame(header, {}, bytes.subspan(static_cast<size_t>(at)));
      at += sizes[r];
    }
    sent_ = at;
    count(encoded, sent_);
    if (watched()) look(bytes);
  }

  void look(std::span<const std::byte> bytes) {
    const Tensor seen = zeros({whole().numel()});
    const std::span<float> out{seen.mutable_data<float>(), static_cast<size_t>(seen.numel())};
    for (int r = 0; r < ranks(); ++r) {
      const auto size = static_cast<size_t>(read(send_)[r]);
      decode_part(bytes.first(size), r, out, code_of_part);
      bytes = bytes.subspan(size);
    }
    show_wire(seen);
  }

  enum Kind { code_of_part, code_of_sum };
  // `out`: of the whole range.
  void decode_part(std::span<const std::byte> bytes, int owner, std::span<float> out, Kind kind) {
    const Pieces its = part(owner);
    const Frame frame = read_frame(bytes, compression().expected(its));
    if ((frame.header.flags & FrameHeader::kNotFinite) != 0) note_overflow();
    const std::span<float> to =
        out.subspan(static_cast<size_t>(part_of(owner).begin), static_cast<size_t>(its.numel()));
    if (kind == code_of_part)
      code().decode_add(frame.code, its, amplitudes_of(owner), to);
    else
      code().decode_sum(frame.code, its, amplitudes_of(owner), to);
  }

  WorkPtr post_part_sizes() {
    counts(receive_);
    const std::vector<int64_t>& one_each = compression().ones();
    return comm().all_to_all_v(receive_, one_each, send_, one_each, tag());
  }

  WorkPtr post_parts() {
    const int me = comm().rank();
    int64_t* sizes = counts(receive_);
    int64_t all = 0;
    for (int r = 0; r < ranks(); ++r) {
      if (!sized()) sizes[r] = room_of_part(me);
      expect_size(r, sizes[r], room_of_part(me));
      all += sizes[r];
    }
    received_ = Tensor::empty({all}, DType::u8);
    return comm().all_to_all_v(received_, read(receive_), parts_.slice(0, sent_), read(send_),
                               tag());
  }

  void expect_size(int rank, int64_t size, int64_t most) {
    compression().read_from(rank, tag(), [&] {
      if (size < 0 || size > most) throw BadCode("its size is out of range");
    });
  }

  void add_up() {
    const Pieces mine = part(comm().rank());
    const Tensor added = zeros({mine.numel()});
    add_parts(mine, {added.mutable_data<float>(), static_cast<size_t>(mine.numel())});
    encode_sum(mine, {added.data<float>(), static_cast<size_t>(mine.numel())});
  }

  void add_parts(const Pieces& mine, std::span<float> sum) {
    const Stopwatch timed(traffic().decode_s);
    const int me = comm().rank();
    std::span<const std::byte> rest = bytes_of(received_);
    for (int r = 0; r < ranks(); ++r) {
      const auto size = static_cast<size_t>(read(receive_)[r]);
      compression().read_from(r, tag(), [&] {
        const Frame frame = read_frame(rest.first(size), compression().expected(mine));
        finite_ &= (frame.header.flags & FrameHeader::kNotFinite) == 0;
        code().decode_add(frame.code, mine, amplitudes_of(me), sum);
      });
      rest = rest.subspan(size);
    }
  }

  void encode_sum(const Pieces& mine, std::span<const float> sum) {
    const Stopwatch timed(traffic().encode_s);
    const int me = comm().rank();
    sum_ = Tensor::empty({room_of_sum(me)}, DType::u8);
    const std::span<std::byte> bytes = bytes_of(sum_);
    ToEncode in = compression().sum_input(plan(), sum);
    in.amplitudes = amplitudes_of(me);
    Encoded encoded = code().encode_sum(in, bytes.subspan(static_cast<size_t>(frame_head(0))));
    Compression::settle(in, encoded);
    encoded.finite &= finite_;
    bytes_ = write_frame(compression().header(mine, encoded), {}, bytes);
    count_sum(encoded, bytes_);
  }

  WorkPtr post_sum_sizes() {
    const Tensor mine = Tensor::empty({1}, DType::i64);
    mine.mutable_data<int64_t>()[0] = bytes_;
    return comm().all_gather_v(receive_, mine, {}, tag());
  }

  WorkPtr post_sums() {
    int64_t* sizes = counts(receive_);
    int64_t all = 0;
    for (int r = 0; r < ranks(); ++r) {
      if (!sized()) sizes[r] = room_of_sum(r);
      expect_size(r, sizes[r], room_of_sum(r));
      all += sizes[r];
    }
    sums_ = Tensor::empty({all}, DType::u8);
    return comm().all_gather_v(sums_, sum_.slice(0, bytes_), read(receive_), tag());
  }

  void decode() override {
    const std::span<float> sum = begin_sum();
    std::span<const std::byte> rest = bytes_of(sums_);
    for (int r = 0; r < ranks(); ++r) {
      const auto size = static_cast<size_t>(read(receive_)[r]);
      compression().read_from(r, tag(),
                              [&] { decode_part(rest.first(size), r, sum, code_of_sum); });
      rest = rest.subspan(size);
    }
    parts_ = received_ = sum_ = sums_ = send_ = receive_ = {};
    end_sum();
  }

  Tensor parts_, received_;  // u8: frames of this rank's parts, of all ranks' code of its own part
  int64_t sent_ = 0;         // bytes of parts_
  Tensor send_, receive_;    // i64: bytes, by rank
  bool finite_ = true;       // every rank's code of it
  Tensor sum_, sums_;        // u8: the frame of this rank's sum, of all
  int64_t bytes_ = 0;        // of sum_
};

}  // namespace

WorkPtr begin_owned(std::shared_ptr<Compression> compression, RangePlan& plan,
                    const optim::FlatView& range, OpTag tag) {
  const auto queue = compression->queue();
  auto sum = make_pooled<Owned>(std::move(compression), plan, range, tag);
  queue->start(sum);
  return sum;
}

}  // namespace lockstep::distributed
