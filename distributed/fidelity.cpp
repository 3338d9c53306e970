#include "distributed/fidelity.h"

#include <algorithm>
#include <cmath>

namespace lockstep::distributed {

// n sets of s elements each have a union of u: n·s where they are disjoint, s where they are equal.
double Fidelity::overlap(int ranks) const {
  if (ranks < 2 || sent_share <= 0) return 1;
  return std::clamp((ranks * sent_share - summed_share) / ((ranks - 1) * sent_share), 0.0, 1.0);
}

void FidelityMeter::raw(int64_t begin, std::span<const float> values) {
  if (raw_.empty()) {
    raw_.resize(static_cast<size_t>(numel_));
    unsent_.resize(raw_.size());
  }
  std::ranges::copy(values, raw_.begin() + begin);
}

void FidelityMeter::sent(int64_t begin, std::span<const float> values) {
  if (raw_.empty()) return;
  Sums& sums = ranges_[begin];
  sums.numel = static_cast<int64_t>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t at = static_cast<size_t>(begin) + i;
    const double r = double{raw_[at]}, v = double{values[i]};
    sums.raw += r * r;
    sums.sent += v * v;
    sums.dot += r * v;
    sums.error += (v - r) * (v - r);
    sums.non_zero += v != 0 ? 1 : 0;
    unsent_[at] = v != 0 ? 0 : unsent_[at] + 1;
    sums.oldest = std::max(sums.oldest, unsent_[at]);
  }
}

void FidelityMeter::summed(int64_t begin, std::span<const float> values) {
  const auto at = ranges_.find(begin);
  if (at == ranges_.end()) return;
  at->second.summed += static_cast<int64_t>(values.size());
  at->second.non_zero_summed += std::ranges::count_if(values, [](float v) { return v != 0; });
}

Fidelity FidelityMeter::Sums::fidelity(int64_t begin) const {
  Fidelity f{.begin = begin, .numel = numel, .oldest_unsent = oldest};
  if (numel == 0) return f;
  if (raw > 0) f.relative_error = std::sqrt(error / raw);
  if (raw > 0 && sent > 0) f.cosine = dot / std::sqrt(raw * sent);
  f.sent_share = static_cast<double>(non_zero) / static_cast<double>(numel);
  if (summed > 0)
    f.summed_share = static_cast<double>(non_zero_summed) / static_cast<double>(summed);
  return f;
}

Fidelity FidelityMeter::all() const {
  Sums all;
  for (const auto& [begin, sums] : ranges_) {
    all.numel += sums.numel;
    all.raw += sums.raw;
    all.sent += sums.sent;
    all.dot += sums.dot;
    all.error += sums.error;
    all.non_zero += sums.non_zero;
    all.summed += sums.summed;
    all.non_zero_summed += sums.non_zero_summed;
    all.oldest = std::max(all.oldest, sums.oldest);
  }
  return all.fidelity(ranges_.empty() ? 0 : ranges_.begin()->first);
}

std::vector<Fidelity> FidelityMeter::by_range() const {
  std::vector<Fidelity> all;
  for (const auto& [begin, sums] : ranges_) all.push_back(sums.fidelity(begin));
  return all;
}

}  // namespace lockstep::distributed
