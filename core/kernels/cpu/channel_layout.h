#pragma once
#include <algorithm>

#include "core/kernels/cpu/floats.h"

// Note [Images are shared out]
// Rows (n, c) of L values follow each other in memory, and threads take stretches of them: the
// images that they convolve, too, so that what one operation leaves in a thread's cache the next
// one finds there. Rows of a channel are gone through in pieces of kRoom, each of whose sums goes
// into a double; what rows gave, alone or, where they are short, several of a channel together, is
// added up in order. Where L = 1 threads take channels, a lane each, line after line, and sums go
// into doubles every kLines lines. Either way bits do not depend on the threads.

namespace lockstep::cpu {

inline constexpr int64_t kLines = 64;
inline constexpr int64_t kPart = 256;  // values

struct ChannelLayout {
  int64_t samples, channels, positions;  // x[N, C, L]
  int64_t count() const { return samples * positions; }
  int64_t grain() const { return row_grain(3 * count()); }  // of channels
  bool columns() const { return positions == 1; }

  // Rows of one channel that go together: a part. Parts of all channels follow each other.
  int64_t together() const { return std::max<int64_t>(1, kPart / std::max<int64_t>(1, positions)); }
  int64_t groups() const { return (samples + together() - 1) / together(); }
  int64_t parts() const { return groups() * channels; }
  int64_t part_grain() const { return row_grain(3 * together() * positions); }
  int64_t values_of(int64_t group) const {
    return std::min(together(), samples - group * together()) * positions;
  }
};

inline ChannelLayout layout_of(std::string_view kernel, const Tensor& x) {
  check(x.rank() >= 2 && x.size(1) >= 1,
        "[kernel.{}] expected [N, C, ...] with at least one channel, got {}", kernel, x.shape());
  ChannelLayout layout{x.size(0), x.size(1), 1};
  for (int d = 2; d < x.rank(); ++d) layout.positions *= x.size(d);
  return layout;
}

// f(at, n): the pieces of a part, in order.
template <class F>
void each_piece(const ChannelLayout& x, int64_t group, int64_t c, F f) {
  const int64_t first = group * x.together();
  for (int64_t sample = first; sample < std::min(x.samples, first + x.together()); ++sample) {
    const int64_t begin = (sample * x.channels + c) * x.positions;
    for (int64_t i = 0; i < x.positions; i += kRoom) f(begin + i, std::min(kRoom, x.positions - i));
  }
}
// f(group, c) for all parts, shared out.
template <class F>
void each_part(const ChannelLayout& x, F f) {
  parallel_for(x.parts(), x.part_grain(), [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) f(part / x.channels, part % x.channels);
  });
}
// f(c) for all channels, after what was found for each of their parts.
template <class F>
void each_channel(const ChannelLayout& x, F f) {
  parallel_for(x.channels, row_grain(4 * x.groups()), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) f(c);
  });
}

// Sums of up to kRoom channels, a lane each: f32 for kLines lines, then into doubles.
template <int kSums>
struct LaneSums {
  alignas(64) float part[kSums][kRoom];
  double total[kSums][kRoom];
  explicit LaneSums(int64_t n) {
    for (int s = 0; s < kSums; ++s) std::fill_n(part[s], n, 0.0f), std::fill_n(total[s], n, 0.0);
  }
  void flush(int64_t n) {
    for (int s = 0; s < kSums; ++s)
      for (int64_t i = 0; i < n; ++i) total[s][i] += part[s][i], part[s][i] = 0;
  }
  // add(at): the lane's line that begins at element `at`.
  template <class F>
  void over_lines(const ChannelLayout& x, int64_t first, int64_t n, F add) {
    for (int64_t sample = 0; sample < x.samples; ++sample) {
      add(sample * x.channels + first);
      if ((sample + 1) % kLines == 0) flush(n);
    }
    flush(n);
  }
};

// f(first, n): channels in ranges of at most kRoom.
template <class F>
void channel_ranges(const ChannelLayout& x, F f) {
  parallel_for(x.channels, x.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kRoom) f(first, std::min(kRoom, end - first));
  });
}

// [3, C]: what a batch has of each channel.
inline void expect_statistics(std::string_view kernel, const Tensor& statistics, int64_t channels) {
  expect_dtype(kernel, "statistics", statistics, DType::f32);
  expect_shape(kernel, "statistics", statistics, {3, channels});
}

}  // namespace lockstep::cpu
