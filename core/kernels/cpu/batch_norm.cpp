#include "core/kernels/batch_norm.h"

#include <cmath>

#include "core/kernels/cpu/batch_norm_loops.h"
#include "core/kernels/cpu/floats.h"

// Note [Channels are shared out]
// Threads take channels, and every channel is gone through in one order: rows (n, c) of L values
// in pieces of kRoom, or, where L = 1, line after line with a lane a channel. So a channel's bits
// do not depend on the threads. Sums go into doubles after every piece, or every kLines lines.

namespace lockstep::cpu {
namespace {

constexpr int64_t kLines = 64;

struct Layout {
  int64_t samples, channels, positions;  // x[N, C, L]
  int64_t count() const { return samples * positions; }
  int64_t grain() const { return row_grain(3 * count()); }
  bool columns() const { return positions == 1; }
};

Layout layout_of(std::string_view kernel, const Tensor& x) {
  check(x.rank() >= 2 && x.size(1) >= 1,
        "[kernel.{}] expected [N, C, ...] with at least one channel, got {}", kernel, x.shape());
  Layout layout{x.size(0), x.size(1), 1};
  for (int d = 2; d < x.rank(); ++d) layout.positions *= x.size(d);
  return layout;
}

// A number of each channel where a tensor may be absent.
struct PerChannel {
  Widened given;
  Scratch<float> constant;
  const float* at;
  PerChannel(std::string_view kernel, std::string_view what, const Tensor& x, int64_t channels,
             float otherwise)
      : given(x), constant(x.defined() ? 0 : channels), at(given.data()) {
    if (x.defined()) {
      expect_float_vector(kernel, what, x, channels);
      return;
    }
    std::fill_n(constant.data(), channels, otherwise);
    at = constant.data();
  }
};

// f(at, n): the pieces of channel c, in order.
template <class F>
void each_piece(const Layout& x, int64_t c, F f) {
  for (int64_t sample = 0; sample < x.samples; ++sample) {
    const int64_t begin = (sample * x.channels + c) * x.positions;
    for (int64_t i = 0; i < x.positions; i += kRoom) f(begin + i, std::min(kRoom, x.positions - i));
  }
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
  void over_lines(const Layout& x, int64_t first, int64_t n, F add) {
    for (int64_t sample = 0; sample < x.samples; ++sample) {
      add(sample * x.channels + first);
      if ((sample + 1) % kLines == 0) flush(n);
    }
    flush(n);
  }
};

// f(first, n): channels in ranges of at most kRoom.
template <class F>
void channel_ranges(const Layout& x, F f) {
  parallel_for(x.channels, x.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kRoom) f(first, std::min(kRoom, end - first));
  });
}

void store_moments(float* moments, int64_t channels, int64_t c, double mean, double m2) {
  const auto centre = static_cast<float>(mean);
  moments[c] = centre;
  moments[channels + c] = static_cast<float>(mean - centre);
  moments[2 * channels + c] = static_cast<float>(m2);
}
// From Σ (x - centre) and Σ (x - centre)²: what the second pass corrects (Chan et al. 1983).
void store_moments(float* moments, int64_t channels, int64_t c, float centre, double linear,
                   double square, double count) {
  const double shift = linear / count, m2 = square - linear * shift;
  store_moments(moments, channels, c, centre + shift, m2 < 0 ? 0 : m2);
}

void channel_moments(const Tensor& moments, const Tensor& x) {
  const Layout layout = layout_of("channel_moments", x);
  expect_floats("channel_moments", {&x});
  expect_dtype("channel_moments", "moments", moments, DType::f32);
  expect_shape("channel_moments", "moments", moments, {3, layout.channels});
  float* m = moments.mutable_data<float>();
  if (layout.count() == 0) {
    std::fill_n(m, 3 * layout.channels, 0.0f);
    return;
  }
  const FloatsIn in(x);
  const auto& loops = LOCKSTEP_PICK_LOOPS(BatchNorm);
  const int64_t channels = layout.channels;
  const auto count = static_cast<double>(layout.count());
  if (layout.columns()) {
    channel_ranges(layout, [&](int64_t first, int64_t n) {
      Room room, origin, centre;
      std::copy_n(in.read(first, n, room), n, origin.floats);
      LaneSums<1> sum(n);
      sum.over_lines(layout, first, n, [&](int64_t at) {
        loops.columns_deviation(sum.part[0], in.read(at, n, room), origin, n);
      });
      for (int64_t i = 0; i < n; ++i)
        centre[i] = static_cast<float>(origin[i] + sum.total[0][i] / count);
      LaneSums<2> both(n);
      both.over_lines(layout, first, n, [&](int64_t at) {
        loops.columns_moments(both.part[0], both.part[1], in.read(at, n, room), centre, n);
      });
      for (int64_t i = 0; i < n; ++i)
        store_moments(m, channels, first + i, centre[i], both.total[0][i], both.total[1][i], count);
    });
    return;
  }
  parallel_for(channels, layout.grain(), [&](int64_t begin, int64_t end) {
    Room room;
    for (int64_t c = begin; c < end; ++c) {
      const float origin = *in.read(c * layout.positions, 1, room);
      double sum = 0, linear = 0, square = 0;
      each_piece(layout, c, [&](int64_t at, int64_t n) {
        loops.row_deviation(&sum, in.read(at, n, room), origin, n);
      });
      const auto centre = static_cast<float>(origin + sum / count);
      each_piece(layout, c, [&](int64_t at, int64_t n) {
        loops.row_moments(&linear, &square, in.read(at, n, room), centre, n);
      });
      store_moments(m, channels, c, centre, linear, square, count);
    }
  });
}

void merge_moments(const Tensor& moments, const Tensor& parts, std::span<const int64_t> counts) {
  expect_dtype("merge_moments", "moments", moments, DType::f32);
  expect_dtype("merge_moments", "parts", parts, DType::f32);
  check(moments.rank() == 2 && moments.size(0) == 3,
        "[kernel.merge_moments] moments; expected [3, C], got {}", moments.shape());
  const int64_t channels = moments.size(1), n = static_cast<int64_t>(counts.size());
  expect_shape("merge_moments", "parts", parts, {n, 3, channels});
  const float* part = parts.data<float>();
  float* out = moments.mutable_data<float>();
  for (int64_t c = 0; c < channels; ++c) {
    double count = 0, mean = 0, m2 = 0;
    for (int64_t p = 0; p < n; ++p) {
      const float* of = part + 3 * p * channels + c;
      const auto more = static_cast<double>(counts[static_cast<size_t>(p)]);
      if (more == 0) continue;
      const double its_mean = double{of[0]} + of[channels], delta = its_mean - mean;
      const double all = count + more;
      m2 += of[2 * channels] + (count > 0 ? delta * delta * count * more / all : 0);
      mean = count > 0 ? mean + delta * more / all : its_mean;
      count = all;
    }
    store_moments(out, channels, c, mean, m2);
  }
}

void expect_statistics(std::string_view kernel, const Tensor& statistics, int64_t channels) {
  expect_dtype(kernel, "statistics", statistics, DType::f32);
  expect_shape(kernel, "statistics", statistics, {3, channels});
}
float reciprocal_deviation(double variance, float eps) {
  return static_cast<float>(1 / std::sqrt(variance + eps));
}

void batch_statistics(const Tensor& statistics, const Tensor& moments, int64_t count, float eps) {
  check(count >= 1, "[kernel.batch_statistics] expected a count of at least 1, got {}", count);
  check(moments.rank() == 2, "[kernel.batch_statistics] moments; expected [3, C], got {}",
        moments.shape());
  const int64_t channels = moments.size(1);
  expect_statistics("batch_statistics", moments, channels);
  expect_statistics("batch_statistics", statistics, channels);
  const float* m = moments.data<float>();
  float* out = statistics.mutable_data<float>();
  std::copy_n(m, 2 * channels, out);
  for (int64_t c = 2 * channels; c < 3 * channels; ++c)
    out[c] = reciprocal_deviation(m[c] / static_cast<double>(count), eps);
}

void fixed_statistics(const Tensor& statistics, const Tensor& mean, const Tensor& variance,
                      float eps) {
  const int64_t channels = mean.numel();
  expect_statistics("fixed_statistics", statistics, channels);
  expect_shape("fixed_statistics", "variance", variance, mean.shape());
  const float *m = mean.data<float>(), *v = variance.data<float>();
  float* out = statistics.mutable_data<float>();
  std::copy_n(m, channels, out);
  std::fill_n(out + channels, channels, 0.0f);
  for (int64_t c = 0; c < channels; ++c) out[2 * channels + c] = reciprocal_deviation(v[c], eps);
}

void update_running(const Tensor& mean, const Tensor& variance, const Tensor& moments,
                    int64_t count, double weight) {
  check(count >= 2, "[kernel.update_running] expected a count of at least 2, got {}", count);
  const int64_t channels = mean.numel();
  expect_shape("update_running", "variance", variance, mean.shape());
  expect_shape("update_running", "moments", moments, {3, channels});
  const float* m = moments.data<float>();
  float *to_mean = mean.mutable_data<float>(), *to_variance = variance.mutable_data<float>();
  for (int64_t c = 0; c < channels; ++c) {
    const double batch = double{m[c]} + m[channels + c],
                 unbiased = m[2 * channels + c] / static_cast<double>(count - 1);
    if (!std::isfinite(batch) || !std::isfinite(unbiased)) continue;
    to_mean[c] = static_cast<float>(to_mean[c] + weight * (batch - to_mean[c]));
    to_variance[c] = static_cast<float>(to_variance[c] + weight * (unbiased - to_variance[c]));
  }
}

void batch_norm(const Tensor& y, const Tensor& x, const Tensor& statistics, const Tensor& gamma,
                const Tensor& beta) {
  const Layout layout = layout_of("batch_norm", x);
  expect_same_floats("batch_norm", {&x, &y});
  expect_statistics("batch_norm", statistics, layout.channels);
  const int64_t channels = layout.channels;
  const PerChannel g("batch_norm", "gamma", gamma, channels, 1),
      b("batch_norm", "beta", beta, channels, 0);
  const float *centre = statistics.data<float>(), *shift = centre + channels,
              *rstd = shift + channels;
  const Scratch<float> scale(channels);
  for (int64_t c = 0; c < channels; ++c) scale[c] = rstd[c] * g.at[c];
  const FloatsIn in(x);
  const FloatsOut to(y);
  const auto& loops = LOCKSTEP_PICK_LOOPS(BatchNorm);
  if (layout.columns()) {
    channel_ranges(layout, [&](int64_t c, int64_t n) {
      Room from, result;
      for (int64_t sample = 0; sample < layout.samples; ++sample) {
        const int64_t at = sample * channels + c;
        loops.columns_apply(to.place(at, result), in.read(at, n, from), centre + c, shift + c,
                            scale.data() + c, b.at + c, n);
        to.write(at, n, result);
      }
    });
    return;
  }
  parallel_for(channels, layout.grain(), [&](int64_t begin, int64_t end) {
    Room from, result;
    for (int64_t c = begin; c < end; ++c)
      each_piece(layout, c, [&](int64_t at, int64_t n) {
        loops.row_apply(to.place(at, result), in.read(at, n, from), centre + c, shift + c,
                        scale.data() + c, b.at + c, n);
        to.write(at, n, result);
      });
  });
}

void batch_norm_backward_sums(const Tensor& sums, const Tensor& dy, const Tensor& x,
                              const Tensor& statistics) {
  const Layout layout = layout_of("batch_norm_backward_sums", x);
  expect_same_floats("batch_norm_backward_sums", {&x, &dy});
  expect_statistics("batch_norm_backward_sums", statistics, layout.channels);
  expect_dtype("batch_norm_backward_sums", "sums", sums, DType::f32);
  expect_shape("batch_norm_backward_sums", "sums", sums, {2, layout.channels});
  const int64_t channels = layout.channels;
  const float *centre = statistics.data<float>(), *shift = centre + channels,
              *rstd = shift + channels;
  float *plain = sums.mutable_data<float>(), *weighted = plain + channels;
  const auto store = [&](int64_t c, double sum, double product) {
    plain[c] = static_cast<float>(sum);
    weighted[c] = static_cast<float>(product * rstd[c]);
  };
  const FloatsIn in(x), d(dy);
  const auto& loops = LOCKSTEP_PICK_LOOPS(BatchNorm);
  if (layout.columns()) {
    channel_ranges(layout, [&](int64_t first, int64_t n) {
      Room room, d_room;
      LaneSums<2> both(n);
      both.over_lines(layout, first, n, [&](int64_t at) {
        loops.columns_sums(both.part[0], both.part[1], d.read(at, n, d_room), in.read(at, n, room),
                           centre + first, shift + first, n);
      });
      for (int64_t i = 0; i < n; ++i) store(first + i, both.total[0][i], both.total[1][i]);
    });
    return;
  }
  parallel_for(channels, layout.grain(), [&](int64_t begin, int64_t end) {
    Room room, d_room;
    for (int64_t c = begin; c < end; ++c) {
      double sum = 0, product = 0;
      each_piece(layout, c, [&](int64_t at, int64_t n) {
        loops.row_sums(&sum, &product, d.read(at, n, d_room), in.read(at, n, room), centre[c],
                       shift[c], n);
      });
      store(c, sum, product);
    }
  });
}

void batch_norm_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                         const Tensor& statistics, const Tensor& gamma, const Tensor& sums,
                         int64_t count) {
  const Layout layout = layout_of("batch_norm_backward", x);
  expect_same_floats("batch_norm_backward", {&x, &dx, &dy});
  expect_statistics("batch_norm_backward", statistics, layout.channels);
  const int64_t channels = layout.channels;
  if (sums.defined()) {
    expect_dtype("batch_norm_backward", "sums", sums, DType::f32);
    expect_shape("batch_norm_backward", "sums", sums, {2, channels});
    check(count >= layout.count(),
          "[kernel.batch_norm_backward] count; expected {} or more, got {}", layout.count(), count);
  }
  if (layout.count() == 0) return;
  const PerChannel g("batch_norm_backward", "gamma", gamma, channels, 1);
  const float *centre = statistics.data<float>(), *shift = centre + channels,
              *rstd = shift + channels;
  const Scratch<float> scale(channels), mean(channels), slope(channels);
  const float* s = sums.defined() ? sums.data<float>() : nullptr;
  for (int64_t c = 0; c < channels; ++c) {
    scale[c] = rstd[c] * g.at[c];
    const auto all = static_cast<double>(count);
    mean[c] = s ? static_cast<float>(s[c] / all) : 0.0f;
    slope[c] = s ? static_cast<float>(double{s[channels + c]} * rstd[c] / all) : 0.0f;
  }
  const FloatsIn in(x), d(dy);
  const FloatsOut to(dx);
  const auto& loops = LOCKSTEP_PICK_LOOPS(BatchNorm);
  const auto piece = [&](auto loop, int64_t c, int64_t at, int64_t n, float* from, float* d_room,
                         float* result) {
    loop(to.place(at, result), d.read(at, n, d_room), in.read(at, n, from), centre + c, shift + c,
         scale.data() + c, mean.data() + c, slope.data() + c, n);
    to.write(at, n, result);
  };
  if (layout.columns()) {
    channel_ranges(layout, [&](int64_t c, int64_t n) {
      Room from, d_room, result;
      for (int64_t sample = 0; sample < layout.samples; ++sample)
        piece(loops.columns_backward, c, sample * channels + c, n, from, d_room, result);
    });
    return;
  }
  parallel_for(channels, layout.grain(), [&](int64_t begin, int64_t end) {
    Room from, d_room, result;
    for (int64_t c = begin; c < end; ++c)
      each_piece(layout, c, [&](int64_t at, int64_t n) {
        piece(loops.row_backward, c, at, n, from, d_room, result);
      });
  });
}

const Provide provided[] = {
    {kernel::channel_moments, DeviceType::cpu, channel_moments},
    {kernel::merge_moments, DeviceType::cpu, merge_moments},
    {kernel::batch_statistics, DeviceType::cpu, batch_statistics},
    {kernel::fixed_statistics, DeviceType::cpu, fixed_statistics},
    {kernel::update_running, DeviceType::cpu, update_running},
    {kernel::batch_norm, DeviceType::cpu, batch_norm},
    {kernel::batch_norm_backward_sums, DeviceType::cpu, batch_norm_backward_sums},
    {kernel::batch_norm_backward, DeviceType::cpu, batch_norm_backward},
};

}  // namespace
}  // namespace lockstep::cpu
