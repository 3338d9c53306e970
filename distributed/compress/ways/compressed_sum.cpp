#include "distributed/compress/ways/compressed_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"

namespace lockstep::distributed {

WorkPtr CompressedSum::post(int stage) {
  const double before = comm().stats().total().wire_bytes;
  WorkPtr work = post_stage(stage);
  traffic().wire += comm().stats().total().wire_bytes - before;
  return work;
}

void CompressedSum::finish() {
  const Stopwatch timed(traffic().decode_s);
  decode();
}

void CompressedSum::count(const Encoded& encoded, int64_t framed) {
  const double n = comm().size();
  traffic().raw += 2 * (n - 1) / n * static_cast<double>(range_.numel() * size_of(DType::f32));
  ++traffic().sums;
  traffic().elements += range_.numel();
  traffic().codes += encoded.bytes;
  traffic().framing += framed - encoded.bytes.total();
  traffic().saturated += encoded.saturated;
  traffic().underflowed += encoded.underflowed;
}

void CompressedSum::count_sum(const Encoded& encoded, int64_t framed) {
  traffic().sum_codes += encoded.bytes;
  traffic().framing += framed - encoded.bytes.total();
}

Pieces CompressedSum::part(int rank) const {
  const RangePlan::Owned& owned = plan_.owners()[static_cast<size_t>(rank)];
  Pieces pieces = whole_;
  pieces.ends = owned.ends;
  pieces.position += static_cast<uint64_t>(owned.begin);
  return pieces;
}

std::span<const float> CompressedSum::values() {
  const Tensor& grad = range_.grad;
  if (!f32_.defined()) {
    if (grad.dtype() == DType::f32) {
      f32_ = grad;
    } else {
      f32_ = Tensor::empty(grad.shape(), DType::f32, grad.device());
      kernel::cast(f32_, grad);
    }
  }
  return {f32_.data<float>(), static_cast<size_t>(f32_.numel())};
}

WorkPtr CompressedSum::post_amplitudes(std::span<const int64_t> ends) {
  const Stopwatch timed(traffic().encode_s);
  amplitudes_ = Tensor::empty({static_cast<int64_t>(ends.size())});
  ToEncode in = compression_->input(plan_, values());
  in.pieces.ends = ends;
  code().amplitudes(in, {amplitudes_.mutable_data<float>(), ends.size()});
  return comm().all_reduce(amplitudes_, {.op = ReduceOp::max, .tag = tag_});
}

std::span<const float> CompressedSum::amplitudes() {
  if (!amplitudes_.defined()) return {};
  float* a = amplitudes_.mutable_data<float>();
  const auto n = static_cast<size_t>(amplitudes_.numel());
  for (size_t i = 0; i < n; ++i)
    if (!std::isfinite(a[i])) {
      note_overflow();
      a[i] = std::numeric_limits<float>::max();
    }
  return {a, n};
}

std::span<float> CompressedSum::begin_sum() {
  if (!f32_.defined())
    f32_ = range_.grad.dtype() == DType::f32 ? range_.grad
                                             : Tensor::empty(range_.grad.shape(), DType::f32);
  kernel::fill(f32_, 0);
  return {f32_.mutable_data<float>(), static_cast<size_t>(f32_.numel())};
}

void CompressedSum::end_sum() {
  const Tensor& grad = range_.grad;
  if (!f32_.is(grad) || compression_->post() != 1) kernel::scale(grad, f32_, compression_->post());
  if (size_of(grad.dtype()) == 2 && kernel::first_non_finite(grad) >= 0) note_overflow();
  f32_ = amplitudes_ = {};
  if (watched()) compression_->watch().observer->see(GradientStage::reduced, range_, grad);
}

void CompressedSum::show_wire(const Tensor& decoded) {
  compression_->watch().observer->see(GradientStage::wire, range_, decoded);
}

WorkPtr begin_sum(std::shared_ptr<Compression> compression, const optim::FlatView& range,
                  OpTag tag) {
  RangePlan& plan = compression->plan(range);
  switch (plan.way()) {
    case Way::added:
      return begin_added(std::move(compression), plan, range, tag);
    case Way::owned:
      return begin_owned(std::move(compression), plan, range, tag);
    case Way::automatic:
    case Way::gathered:
      break;
  }
  return begin_gathered(std::move(compression), plan, range, tag);
}

}  // namespace lockstep::distributed
