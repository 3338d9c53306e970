#pragma once
#include <map>
#include <memory>
#include <optional>

#include "distributed/comm/communicator.h"
#include "distributed/compress/compress_spec.h"
#include "distributed/compress/feedback.h"
#include "distributed/compress/frame.h"
#include "distributed/compress/range_plan.h"
#include "distributed/compress/staged_sum.h"
#include "distributed/sum_watch.h"

namespace lockstep::distributed {

/// What an exchange that compresses is made of: the code, the residuals, and what its ways of
/// summing share.
class Compression {
 public:
  /// `all`: the buffer whose ranges will be summed, with its slices.
  Compression(Communicator& comm, const CompressSpec& spec, uint64_t seed, Way way,
              const optim::FlatView& all, float post, std::shared_ptr<SumWatch> watch);

  const Compressor& code() const { return *code_; }
  bool feedback() const { return spec_.feedback; }
  Communicator& comm() const { return comm_; }
  SumWatch& watch() const { return *watch_; }
  /// What sums are multiplied by before they are rounded to the gradient's dtype.
  float post() const { return post_; }

  RangePlan& plan(const optim::FlatView& range);
  void set_window(const WindowTerms& terms) { terms_ = terms; }
  /// The push path: a frame around the code of `values`, all elements of the buffer, which carry
  /// `scale`, and around the amplitudes that it goes by. u8; undefined where it is not finite.
  Tensor encode_all(const Tensor& values, const WindowTerms& terms);
  /// Bytes that such a frame takes at most.
  int64_t most_pushed_bytes();
  const CompressSpec& spec() const { return spec_; }
  uint64_t seed() const { return seed_; }
  int64_t windows() const { return windows_; }
  CompressionReport report() const;
  /// Ends the window: what it changed counts, or is forgotten. All that is open is posted first.
  void resolve(bool applied);
  /// Whether a residual of elements [begin, end) is not zero.
  bool owes(int64_t begin, int64_t end) const;
  void state(StateIo& io, Fold windows);
  std::shared_ptr<StageQueue> queue() const { return queue_; }

  /// Of a range as a whole, in the window that is open.
  Pieces pieces(const RangePlan& plan, std::span<const int64_t> ends) const;
  /// What is to be encoded of a range; with its residual, where one is kept.
  ToEncode input(const RangePlan& plan, std::span<const float> values);
  /// Of a part that this rank owns, when it is summed.
  ToEncode sum_input(const RangePlan& plan, std::span<const float> sum);
  /// After a code was made of `in`: what was not finite leaves the residual as it was.
  static void settle(const ToEncode& in, const Encoded& encoded);
  FrameHeader header(const Pieces& pieces, const Encoded& encoded) const;
  /// What a frame of so many elements must look like.
  FrameHeader expected(const Pieces& pieces) const { return header(pieces, {}); }
  /// Cleared and filled by whoever encodes; for each rank a 1.
  std::vector<Part>& scratch_parts() { return parts_; }
  const std::vector<int64_t>& ones() const { return ones_; }
  /// Runs what reads bytes of another rank: SystemError naming it, if they are no code. kNobody:
  /// what a collective made of all ranks' bytes.
  template <class F>
  void read_from(int rank, OpTag tag, F&& read) const {
    try {
      read();
    } catch (const BadCode& e) {
      fail(rank, tag, e.what());
    }
  }

 private:
  [[noreturn]] void fail(int rank, OpTag tag, const char* what) const;
  void claim_residuals(RangePlan& plan);
  void add_residual(ToEncode& in, Feedback& kept, int64_t begin, int64_t end) const;

  Communicator& comm_;
  CompressSpec spec_;
  std::string written_;
  std::unique_ptr<Compressor> code_;
  uint64_t seed_;
  Way way_;
  optim::FlatView all_;
  int64_t numel_;
  uint32_t id_;
  float post_;
  std::shared_ptr<SumWatch> watch_;
  std::shared_ptr<StageQueue> queue_ = std::make_shared<StageQueue>();
  WindowTerms terms_;
  int64_t windows_ = 0;  // applied so far
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<RangePlan>> plans_;
  // Of this rank's gradients, of the sums that it owns, of momentum correction.
  std::optional<Feedback> residual_, owned_residual_, velocity_;
  std::vector<Part> parts_;
  std::vector<int64_t> ones_;
  uint64_t loads_ = 1;  // times that state was walked over
};

}  // namespace lockstep::distributed
