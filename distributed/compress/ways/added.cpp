// Codes that are arrays of numbers are added on the wire, by an all-reduce whose sums are made in
// f32; what it brings to a rank does not grow with the number of ranks.
#include <algorithm>

#include "core/kernels/reduce.h"
#include "distributed/compress/ways/compressed_sum.h"

namespace lockstep::distributed {
namespace {

class Added final : public CompressedSum {
 public:
  Added(std::shared_ptr<Compression> compression, RangePlan& plan, const optim::FlatView& range,
        OpTag tag)
      : CompressedSum(compression, plan, range, tag,
                      compression->code().shares_amplitudes() ? 2 : 1) {}

 private:
  WorkPtr post_stage(int stage) override {
    if (stage == 0 && code().shares_amplitudes()) return post_amplitudes(plan().ends());
    encode();
    return comm().all_reduce(code_, {.tag = tag()});
  }

  void encode() {
    const Stopwatch timed(traffic().encode_s);
    code_ = Tensor::empty({code().addends(whole())}, *code().adds_as());
    ToEncode in = compression().input(plan(), values());
    in.amplitudes = amplitudes();
    const Encoded encoded = code().encode(in, bytes_of(code_));
    if (watched()) look();
    // All ranks see it in the sum: the numbers whose bits are all set are none.
    if (!encoded.finite) std::ranges::fill(bytes_of(code_), std::byte{0xff});
    count(encoded, code_.bytes());
  }

  void look() {
    const Tensor seen = zeros({whole().numel()});
    code().decode_add(bytes_of(code_), whole(), amplitudes(),
                      {seen.mutable_data<float>(), static_cast<size_t>(seen.numel())});
    show_wire(seen);
  }

  void decode() override {
    const bool finite = kernel::first_non_finite(code_) < 0;
    if (!finite) note_overflow();
    const std::span<float> sum = begin_sum();
    if (finite)
      compression().read_from(
          kNobody, tag(), [&] { code().decode_add(bytes_of(code_), whole(), amplitudes(), sum); });
    code_ = {};
    end_sum();
  }

  Tensor code_;
};

}  // namespace

WorkPtr begin_added(std::shared_ptr<Compression> compression, RangePlan& plan,
                    const optim::FlatView& range, OpTag tag) {
  const auto queue = compression->queue();
  auto sum = make_pooled<Added>(std::move(compression), plan, range, tag);
  queue->start(sum);
  return sum;
}

}  // namespace lockstep::distributed
