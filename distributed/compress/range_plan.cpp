#include "distributed/compress/range_plan.h"

#include <algorithm>

#include "distributed/compress/frame.h"

namespace lockstep::distributed {
namespace {

// Parts of large ranges begin at multiples of as many elements, where codes have blocks.
constexpr int64_t kAlign = 512, kAlignFrom = 8 * kAlign;

constexpr int64_t kSize = sizeof(int64_t);  // a code's, where it is not fixed

// Ends of [begin, end)'s share of the pieces, counted from begin.
std::vector<int64_t> cut(const std::vector<int64_t>& ends, int64_t begin, int64_t end) {
  std::vector<int64_t> part;
  for (const int64_t e : ends) {
    if (e <= begin) continue;
    if (begin == end) break;
    part.push_back(std::min(e, end) - begin);
    if (e >= end) break;
  }
  return part;
}

}  // namespace

std::vector<int64_t> piece_ends(const optim::FlatView& range, Compressor::Scope scope) {
  const int64_t numel = range.grad.numel();
  std::vector<int64_t> ends;
  if (scope == Compressor::Scope::tensor)
    for (const optim::ParamSlice& slice : range.slices) {
      const int64_t end = std::min(slice.end - range.offset, numel);
      if (end > (ends.empty() ? 0 : ends.back())) ends.push_back(end);
    }
  if (numel > (ends.empty() ? 0 : ends.back())) ends.push_back(numel);
  return ends;
}

RangePlan::RangePlan(const optim::FlatView& range, const Compressor& code, bool feedback, int ranks,
                     int rank, Way way)
    : begin_(range.offset), numel_(range.grad.numel()), ends_(piece_ends(range, code.scope())) {
  const int64_t align = numel_ / ranks >= kAlignFrom ? kAlign : 1;
  const auto border = [&](int r) {
    return r == ranks ? numel_ : numel_ * r / ranks / align * align;
  };
  for (int r = 0; r < ranks; ++r) {
    Owned part{.begin = border(r), .end = border(r + 1), .ends = {}};
    part.ends = cut(ends_, part.begin, part.end);
    for (const int64_t end : part.ends) cut_ends_.push_back(part.begin + end);
    owners_.push_back(std::move(part));
  }
  way_ = choose(code, feedback, ranks, way);
  most_bytes_ = bytes_of(code, ranks, rank);
  traffic.begin = begin_;
  traffic.numel = numel_;
}

Way RangePlan::choose(const Compressor& code, bool feedback, int ranks, Way way) const {
  const bool addable = code.adds_as().has_value() && !feedback;
  if (way == Way::added ? addable : way == Way::owned) return way;
  if (code.needs_owners()) return Way::owned;
  if (way == Way::gathered) return way;
  if (addable) return Way::added;
  const auto head = static_cast<double>(frame_head(0));
  const double n = ranks;
  const double gathered = (n - 1) * (code.predicted_bytes(pieces(ends_)) + head);
  double owned = 0;  // mean over ranks
  for (const Owned& part : owners_) {
    const Pieces its = pieces(part.ends);
    owned +=
        (n - 1) / n * (code.predicted_bytes(its) + code.predicted_sum_bytes(its, ranks) + 2 * head);
  }
  return owned < gathered ? Way::owned : Way::gathered;
}

double RangePlan::bytes_of(const Compressor& code, int ranks, int rank) const {
  const double others = ranks - 1;
  const auto all_reduced = [&](int64_t bytes) {
    return 2 * others / ranks * static_cast<double>(bytes);
  };
  const auto sent = [](int64_t bytes) { return static_cast<double>(frame_bytes(0, bytes)); };
  const double sizes = others * static_cast<double>(kSize);
  const Pieces whole = pieces(ends_);
  const auto& shared_by = way_ == Way::owned ? cut_ends_ : ends_;
  const double amplitudes =
      code.shares_amplitudes()
          ? all_reduced(static_cast<int64_t>(shared_by.size()) * size_of(DType::f32))
          : 0;
  if (way_ == Way::added)
    return amplitudes + all_reduced(code.addends(whole) * size_of(*code.adds_as()));
  if (way_ == Way::gathered)
    return amplitudes + (code.fixed_size() ? 0 : sizes) + others * sent(code.max_bytes(whole));
  double bytes = amplitudes + (code.fixed_parts() ? 0 : 2 * sizes);
  for (int r = 0; r < ranks; ++r) {
    const Owned& owned = owners_[static_cast<size_t>(r)];
    const Part part{.begin = owned.begin, .end = owned.end, .pieces = pieces(owned.ends)};
    if (r == rank)
      bytes += others * sent(code.max_part_bytes(whole, part));
    else
      bytes += sent(code.max_sum_bytes(part.pieces, ranks));
  }
  return bytes;
}

}  // namespace lockstep::distributed
