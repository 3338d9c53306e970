// Codes are bytes from elsewhere: what no rank sends is an error that names who did, on any way.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "codes.h"
#include "core/kernels/elementwise.h"
#include "distributed/comm/launch.h"
#include "distributed/compress/frame.h"
#include "distributed/exchange.h"
#include "precision.h"

namespace lockstep::distributed {
namespace {

// Hands everything on to another communicator; the rank of `liar` changes a byte of the codes that
// it sends.
class Liar final : public CommBackend {
 public:
  Liar(Communicator& comm, int liar, int64_t byte) : comm_(comm), liar_(liar), byte_(byte) {}
  std::string_view name() const override { return "liar"; }
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  WorkPtr post(const Operation& o) override {
    const bool codes = o.in.dtype() == DType::u8;
    if (codes && comm_.rank() == liar_) {
      auto* bytes = static_cast<uint8_t*>(o.in.mutable_bytes_data());
      bytes[byte_] = static_cast<uint8_t>(bytes[byte_] ^ 0x81);
    }
    switch (o.verb) {
      case Verb::all_reduce:
        return comm_.all_reduce(o.in, o.reduce);
      case Verb::all_gather:
        return comm_.all_gather_v(o.out, o.in, o.counts, o.tag);
      case Verb::all_to_all:
        return comm_.all_to_all_v(o.out, o.receive_counts, o.in, o.send_counts, o.tag);
      default:
        throw UsageError("not expected here");
    }
  }
  void progress() override { comm_.progress(); }
  std::unique_ptr<CommBackend> split(const Operation&, int, int) override { return nullptr; }
  void abort(const std::string& cause) noexcept override { comm_.abort(cause); }
  std::unique_ptr<ServicePort> open_service(int64_t, const MakeServiceLogic&) override {
    return nullptr;
  }
  int64_t moved_bytes() const override { return comm_.moved_bytes(); }

 private:
  Communicator& comm_;
  int liar_;
  int64_t byte_;
};

TEST(BadFrames, NameTheRankThatSentThem) {
  for (const std::string& code : all_codes())
    for (const Way way : {Way::gathered, Way::owned})
      for (const int64_t byte : {0, 4, 9, 16, 24, 30, 34, 45}) {  // of the header
        std::atomic<int> named{0};
        try {
          run_ranks(3, [&](Communicator& comm) {
            Communicator lying(std::make_unique<Liar>(comm, 1, byte));
            const optim::FlatView view{.param = zeros({300}), .grad = full({300}, 1)};
            Exchange exchange(lying, {.compress = code, .way = way}, view);
            const WorkPtr work = exchange.sum(view, {"bucket", 7});
            try {
              work->wait();
            } catch (const SystemError& e) {
              EXPECT_EQ(e.fault(), Fault::communication);
              const std::string text = e.what();
              const bool itself = text.starts_with("[exchange.sum]");  // not told by another rank
              if (text.find("rank 1 of 3 sent of bucket 7 cannot be decoded") != std::string::npos)
                ++named;
              EXPECT_TRUE(!itself || e.site().rank == 1) << text;
              throw;
            }
          });
          ADD_FAILURE() << code << " " << static_cast<int>(way) << " byte " << byte;
        } catch (const SystemError&) {
        }
        EXPECT_GT(named, 0) << code << " " << static_cast<int>(way) << " byte " << byte;
      }
}

TEST(BadFrames, AreToldByWhatIsWrong) {
  std::vector<std::byte> frame(static_cast<size_t>(frame_bytes(2, 5)));
  const std::vector<float> amplitudes = {1, 2};
  const FrameHeader header{.code = 3, .amplitudes = 2, .numel = 9, .bytes = 5, .seed = 1};
  EXPECT_EQ(write_frame(header, amplitudes, frame), static_cast<int64_t>(frame.size()));
  const Frame read = read_frame(frame, header);
  EXPECT_EQ(read.code.size(), 5u);
  EXPECT_EQ(read.amplitudes[1], 2);
  for (size_t size = 0; size < frame.size(); ++size)  // cut off anywhere
    EXPECT_THROW(read_frame(std::span(frame).first(size), header), BadCode) << size;
  const auto with = [&](auto change) {
    FrameHeader other = header;
    change(other);
    std::vector<std::byte> bytes = frame;
    std::memcpy(bytes.data(), &other, sizeof other);
    return bytes;
  };
  EXPECT_THROW(read_frame(with([](auto& h) { h.magic = 0; }), header), BadCode);
  EXPECT_THROW(read_frame(with([](auto& h) { h.numel = 8; }), header), BadCode);
  EXPECT_THROW(read_frame(with([](auto& h) { h.amplitudes = 0xffffffff; }), header), BadCode);
  EXPECT_THROW(read_frame(with([](auto& h) { h.bytes = ~uint64_t{0}; }), header), BadCode);
  EXPECT_THROW(read_frame(with([](auto& h) { h.bytes = 17; }), header), BadCode);
  EXPECT_THROW(read_frame(with([](auto& h) { h.flags = 6; }), header), BadCode);
}

}  // namespace
}  // namespace lockstep::distributed
