#include "distributed/compress/feedback.h"

#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"

#include <algorithm>

namespace lockstep::distributed {

Feedback::Feedback(int64_t numel) : now_(zeros({numel})), next_(zeros({numel})) {}

std::span<const float> Feedback::now(int64_t begin, int64_t end) const {
  return {now_.data<float>() + begin, static_cast<size_t>(end - begin)};
}

std::span<float> Feedback::next(int64_t begin, int64_t end) {
  // Some are asked for twice: their amplitudes come first.
  const bool noted = std::ranges::any_of(
      written_, [&](const Range& range) { return range.begin <= begin && end <= range.end; });
  if (!noted && !written_.empty() && written_.back().end == begin)
    written_.back().end = end;
  else if (!noted)
    written_.push_back({begin, end});
  return {next_.mutable_data<float>() + begin, static_cast<size_t>(end - begin)};
}

void Feedback::resolve(bool applied) {
  if (applied) {
    int64_t count = 0;
    for (const Range& range : written_) count += range.end - range.begin;
    if (count == now_.numel())
      std::swap(now_, next_);
    else
      for (const Range& range : written_)
        kernel::copy(now_.slice(range.begin, range.end), next_.slice(range.begin, range.end));
  }
  written_.clear();
}

void Feedback::move_to(Feedback& other, int64_t begin, int64_t end) {
  if (begin >= end) return;
  const Tensor from = now_.slice(begin, end);
  if (kernel::sum_of_squares(from) == 0) return;
  kernel::add_scaled(other.now_.slice(begin, end), from, 1);
  kernel::fill(from, 0);
}

void Feedback::state(StateIo& io, const std::string& name) {
  io.flat(name, now_, Fold::sum_over_ranks);
}

}  // namespace lockstep::distributed
