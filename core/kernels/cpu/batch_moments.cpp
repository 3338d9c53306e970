// What a batch has of each channel: moments, the statistics that normalise by them, running values.
#include <cmath>

#include "core/kernels/batch_norm.h"
#include "core/kernels/cpu/batch_norm_loops.h"
#include "core/kernels/cpu/channel_layout.h"

namespace lockstep::cpu {
namespace {

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
  const ChannelLayout layout = layout_of("channel_moments", x);
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
  // Of each part: its mean, and Σ of the squared distances from that.
  const int64_t groups = layout.groups();
  const Scratch<double> means(layout.parts()), squares(layout.parts());
  each_part(layout, [&](int64_t group, int64_t c) {
    Room room;
    const float origin =
        *in.read((group * layout.together() * channels + c) * layout.positions, 1, room);
    const auto values = static_cast<double>(layout.values_of(group));
    double sum = 0, linear = 0, square = 0;
    each_piece(layout, group, c, [&](int64_t at, int64_t n) {
      loops.row_deviation(&sum, in.read(at, n, room), origin, n);
    });
    const auto centre = static_cast<float>(origin + sum / values);
    each_piece(layout, group, c, [&](int64_t at, int64_t n) {
      loops.row_moments(&linear, &square, in.read(at, n, room), centre, n);
    });
    const double shift = linear / values;
    means[c * groups + group] = centre + shift;
    squares[c * groups + group] = std::max(0.0, square - linear * shift);
  });
  each_channel(layout, [&](int64_t c) {
    const double *mean_of = means.data() + c * groups, *square_of = squares.data() + c * groups;
    double sum = 0, m2 = 0;  // relative to the first mean, for the sake of large ones
    for (int64_t g = 0; g < groups; ++g)
      sum += static_cast<double>(layout.values_of(g)) * (mean_of[g] - mean_of[0]);
    const double mean = mean_of[0] + sum / count;
    for (int64_t g = 0; g < groups; ++g) {
      const double away = mean_of[g] - mean;
      m2 += square_of[g] + static_cast<double>(layout.values_of(g)) * away * away;
    }
    store_moments(m, channels, c, mean, m2);
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

const Provide provided[] = {
    {kernel::channel_moments, DeviceType::cpu, channel_moments},
    {kernel::merge_moments, DeviceType::cpu, merge_moments},
    {kernel::batch_statistics, DeviceType::cpu, batch_statistics},
    {kernel::fixed_statistics, DeviceType::cpu, fixed_statistics},
    {kernel::update_running, DeviceType::cpu, update_running},
};

}  // namespace
}  // namespace lockstep::cpu
