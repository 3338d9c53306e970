#pragma once
#include "distributed/compress/compression.h"

namespace lockstep::distributed {

/// What all ways of a compressed sum have in common: a range of the flat gradient, in f32 for the
/// code, and what happens around it.
class CompressedSum : public StagedSum {
 protected:
  CompressedSum(std::shared_ptr<Compression> compression, RangePlan& plan,
                const optim::FlatView& range, OpTag tag, int stages)
      : StagedSum(compression->queue(), stages),
        compression_(std::move(compression)),
        plan_(plan),
        range_(range),
        tag_(tag),
        whole_(compression_->pieces(plan, plan.ends())) {}

  /// Posts a stage (from 0), when all before it have finished.
  virtual WorkPtr post_stage(int stage) = 0;
  WorkPtr post(int stage) final;
  /// When the last has.
  virtual void decode() = 0;
  void finish() final;

  /// Counts what was encoded of the range; `framed`: bytes of the frames around it.
  void count(const Encoded& encoded, int64_t framed);
  void count_sum(const Encoded& encoded, int64_t framed);
  Traffic& traffic() const { return plan_.traffic; }

  Compression& compression() const { return *compression_; }
  const Compressor& code() const { return compression_->code(); }
  Communicator& comm() const { return compression_->comm(); }
  RangePlan& plan() const { return plan_; }
  OpTag tag() const { return tag_; }
  /// Of the range, as they were in its window.
  const Pieces& whole() const { return whole_; }
  /// Of a rank's part.
  Pieces part(int rank) const;

  /// The gradient in f32: itself, or a copy.
  std::span<const float> values();
  /// Starts to find the largest amplitudes of all ranks, by piece; to be read when it has arrived.
  WorkPtr post_amplitudes(std::span<const int64_t> ends);
  /// They are the same on all ranks, so what is not finite is so on all; then the step is lost and
  /// codes need not make sense of it.
  std::span<const float> amplitudes();

  /// Zeros, for decoded codes to be added to; the gradient's values are gone.
  std::span<float> begin_sum();
  /// Ends what begin_sum() began: the sum is in the gradient, divided and rounded as that is.
  void end_sum();
  /// A code that was made of something that is not finite: the step is to be skipped.
  void note_overflow() { compression_->watch().overflowed = true; }
  /// Tells who looks at gradients what a receiver will see of this rank's.
  bool watched() const { return compression_->watch().observer != nullptr; }
  void show_wire(const Tensor& decoded);

 private:
  std::shared_ptr<Compression> compression_;
  RangePlan& plan_;
  optim::FlatView range_;
  OpTag tag_;
  Pieces whole_;
  Tensor f32_;  // the gradient, or a copy
  Tensor amplitudes_;
};

/// Posts the first collective of a sum that goes the plan's way.
WorkPtr begin_added(std::shared_ptr<Compression> compression, RangePlan& plan,
                    const optim::FlatView& range, OpTag tag);
WorkPtr begin_gathered(std::shared_ptr<Compression> compression, RangePlan& plan,
                       const optim::FlatView& range, OpTag tag);
WorkPtr begin_owned(std::shared_ptr<Compression> compression, RangePlan& plan,
                    const optim::FlatView& range, OpTag tag);
/// By plan.way().
WorkPtr begin_sum(std::shared_ptr<Compression> compression, const optim::FlatView& range,
                  OpTag tag);

inline std::span<std::byte> bytes_of(const Tensor& x) {
  return {static_cast<std::byte*>(x.mutable_bytes_data()), static_cast<size_t>(x.bytes())};
}

}  // namespace lockstep::distributed
