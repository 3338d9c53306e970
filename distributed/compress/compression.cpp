#include "distributed/compress/compression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"

namespace lockstep::distributed {

Compression::Compression(Communicator& comm, const CompressSpec& spec, uint64_t seed, Way way,
                         const optim::FlatView& all, float post, std::shared_ptr<SumWatch> watch)
    : comm_(comm),
      spec_(spec),
      written_(spec.code + (spec.rescale    ? "+ef:rescale"
                            : spec.feedback ? "+ef"
                                            : "")),
      code_(make_compressor(spec)),
      seed_(seed),
      way_(way),
      all_(all),
      numel_(all.grad.numel()),
      id_(code_id(spec.code)),
      post_(post),
      watch_(std::move(watch)),
      ones_(static_cast<size_t>(comm.size()), 1) {
  if (!spec.feedback) return;
  residual_.emplace(numel_);
  // Of two ranks none ever owns a part: gathering brings as much.
  const bool owns = comm.size() > 2 || way == Way::owned || code_->needs_owners();
  if (owns && !code_->exact_sums()) owned_residual_.emplace(numel_);
  if (code_->momentum() != 0) velocity_.emplace(numel_);
}

RangePlan& Compression::plan(const optim::FlatView& range) {
  auto& plan = plans_[{range.offset, range.grad.numel()}];
  if (!plan)
    plan = std::make_unique<RangePlan>(range, *code_, spec_.feedback, comm_.size(), comm_.rank(),
                                       way_);
  if (plan->loads_seen != loads_) claim_residuals(*plan);
  return *plan;
}

// Who owns what goes by the ranges that are summed, which may be others than when the residuals
// were left. What lies in another's part is sent by this rank as if it had been its own from the
// start.
void Compression::claim_residuals(RangePlan& plan) {
  plan.loads_seen = loads_;
  if (!owned_residual_) return;
  int64_t begin = 0, end = 0;
  if (plan.way() == Way::owned) {
    begin = plan.owners()[static_cast<size_t>(comm_.rank())].begin;
    end = plan.owners()[static_cast<size_t>(comm_.rank())].end;
  }
  owned_residual_->move_to(*residual_, plan.begin(), plan.begin() + begin);
  owned_residual_->move_to(*residual_, plan.begin() + end, plan.begin() + plan.numel());
}

void Compression::resolve(bool applied) {
  queue_->drain();
  for (auto* kept : {&residual_, &owned_residual_, &velocity_})
    if (*kept) (*kept)->resolve(applied);
  if (applied) ++windows_;
}

bool Compression::owes(int64_t begin, int64_t end) const {
  for (const auto* kept : {&residual_, &owned_residual_, &velocity_})
    if (*kept && kernel::sum_of_squares((*kept)->residual().slice(begin, end)) != 0) return true;
  return false;
}

void Compression::state(StateIo& io, Fold windows) {
  queue_->drain();
  io.value("exchange.windows", windows_, windows);
  if (residual_) residual_->state(io, "exchange.residual");
  if (owned_residual_) owned_residual_->state(io, "exchange.residual_of_sums");
  if (velocity_) velocity_->state(io, "exchange.velocity");
  ++loads_;
}

Pieces Compression::pieces(const RangePlan& plan, std::span<const int64_t> ends) const {
  return {.ends = ends,
          .window = windows_,
          .seed = seed_,
          .position = static_cast<uint64_t>(windows_) * static_cast<uint64_t>(numel_) +
                      static_cast<uint64_t>(plan.begin())};
}

ToEncode Compression::input(const RangePlan& plan, std::span<const float> values) {
  ToEncode in;
  in.pieces = pieces(plan, plan.ends());
  in.values = values;
  in.scale = static_cast<float>(terms_.scale);
  in.key = static_cast<uint32_t>(2 * comm_.rank());
  in.weight = terms_.weight;
  in.ranks = comm_.size();
  const int64_t begin = plan.begin(), end = begin + plan.numel();
  if (residual_) add_residual(in, *residual_, begin, end);
  if (!velocity_) return in;
  const auto now = velocity_->now(begin, end);
  const auto next = velocity_->next(begin, end);
  if (in.residual.empty()) {
    std::ranges::copy(now, next.begin());
  } else {
    in.velocity = now;
    in.next_velocity = next;
  }
  return in;
}

void Compression::add_residual(ToEncode& in, Feedback& kept, int64_t begin, int64_t end) const {
  const auto now = kept.now(begin, end);
  const auto next = kept.next(begin, end);
  if (spec_.rescale) {  // kept times the learning rate: x = scale · (gradient + residual / lr)
    // A step of next to no length moves nothing: what waits goes on waiting, and nothing is added.
    constexpr double kMost = 0x1p96;
    if (!(terms_.scale <= terms_.lr * kMost)) {
      std::ranges::copy(now, next.begin());
      return;
    }
    in.scale = static_cast<float>(terms_.scale / terms_.lr);
    in.kept_times = static_cast<float>(terms_.lr);
  }
  in.residual = now;
  in.next = next;
}

ToEncode Compression::sum_input(const RangePlan& plan, std::span<const float> sum) {
  const RangePlan::Owned& part = plan.owners()[static_cast<size_t>(comm_.rank())];
  ToEncode in;
  in.pieces = pieces(plan, part.ends);
  in.pieces.position += static_cast<uint64_t>(part.begin);
  in.values = sum;
  in.scale = static_cast<float>(terms_.scale);
  in.key = static_cast<uint32_t>(2 * comm_.rank() + 1);
  in.ranks = comm_.size();
  if (owned_residual_)
    add_residual(in, *owned_residual_, plan.begin() + part.begin, plan.begin() + part.end);
  return in;
}

CompressionReport Compression::report() const {
  CompressionReport report{.spec = written_, .buckets = {}};
  for (const auto& [place, plan] : plans_) {
    if (plan->traffic.sums == 0) continue;
    Traffic& bucket = report.buckets.emplace_back(plan->traffic);
    for (const auto* kept : {&residual_, &owned_residual_})
      if (*kept)
        bucket.residual_squares += kernel::sum_of_squares(
            (*kept)->residual().slice(bucket.begin, bucket.begin + bucket.numel));
  }
  return report;
}

Tensor Compression::encode_all(const Tensor& values, const WindowTerms& terms) {
  set_window(terms);
  RangePlan& whole = plan(all_);
  const Stopwatch timed(whole.traffic.encode_s);
  Tensor f32 = values;
  if (values.dtype() != DType::f32) {
    f32 = Tensor::empty(values.shape());
    kernel::cast(f32, values);
  }
  ToEncode in = input(whole, {f32.data<float>(), static_cast<size_t>(numel_)});
  Tensor amplitudes;
  if (code_->shares_amplitudes()) {
    amplitudes = Tensor::empty({static_cast<int64_t>(whole.ends().size())});
    const std::span<float> own{amplitudes.mutable_data<float>(), whole.ends().size()};
    code_->amplitudes(in, own);
    if (!std::ranges::all_of(own, [](float a) { return std::isfinite(a); })) return {};
    in.amplitudes = own;
  }
  const auto shared = static_cast<int64_t>(in.amplitudes.size());
  const Tensor frame = Tensor::empty({frame_bytes(shared, code_->max_bytes(in.pieces))}, DType::u8);
  const std::span<std::byte> bytes{static_cast<std::byte*>(frame.mutable_bytes_data()),
                                   static_cast<size_t>(frame.bytes())};
  const Encoded encoded = code_->encode(in, bytes.subspan(static_cast<size_t>(frame_head(shared))));
  settle(in, encoded);
  if (!encoded.finite) return {};
  FrameHeader header = this->header(in.pieces, encoded);
  header.amplitudes = static_cast<uint32_t>(shared);
  const int64_t used = write_frame(header, in.amplitudes, bytes);
  Traffic& traffic = whole.traffic;
  ++traffic.sums;
  traffic.elements += numel_;
  traffic.codes += encoded.bytes;
  traffic.framing += used - encoded.bytes.total();
  traffic.wire += static_cast<double>(used);
  traffic.raw += static_cast<double>(numel_ * size_of(DType::f32));
  traffic.saturated += encoded.saturated;
  traffic.underflowed += encoded.underflowed;
  return frame.slice(0, used);
}

int64_t Compression::most_pushed_bytes() {
  const RangePlan& whole = plan(all_);
  const auto shared = static_cast<int64_t>(code_->shares_amplitudes() ? whole.ends().size() : 0);
  return frame_bytes(shared, code_->max_bytes(pieces(whole, whole.ends())));
}

void Compression::settle(const ToEncode& in, const Encoded& encoded) {
  if (encoded.finite) return;
  std::ranges::copy(in.residual, in.next.begin());
  std::ranges::copy(in.velocity, in.next_velocity.begin());
}

FrameHeader Compression::header(const Pieces& pieces, const Encoded& encoded) const {
  return {.code = id_,
          .flags = encoded.finite ? 0 : FrameHeader::kNotFinite,
          .numel = static_cast<uint64_t>(pieces.numel()),
          .bytes = static_cast<uint64_t>(encoded.bytes.total()),
          .seed = pieces.seed,
          .position = pieces.position};
}

void Compression::fail(int rank, OpTag tag, const char* what) const {
  const std::string sender = rank == kNobody
                                 ? "what all ranks together"
                                 : fmt::format("what rank {} of {}", rank, comm_.size());
  throw SystemError(
      Fault::communication,
      fmt::format("[exchange.sum] {} sent of {} {} cannot be decoded: {}; this rank's code is '{}'",
                  sender, tag.what != nullptr ? tag.what : "range", tag.index, what, spec_.code),
      {.rank = rank, .operation = "exchange", .sequence = -1});
}

}  // namespace lockstep::distributed
