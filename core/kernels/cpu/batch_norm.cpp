#include "core/kernels/batch_norm.h"

#include <cmath>

#include "core/kernels/cpu/batch_norm_loops.h"
#include "core/kernels/cpu/floats.h"

// Note [Images are shared out]
// Rows (n, c) of L values follow each other in memory, and threads take stretches of them: the
// images that they convolve, too, so that what one operation leaves in a thread's cache the next
// one finds there. Rows of a channel are gone through in pieces of kRoom, each of whose sums goes
// into a double; what rows gave, alone or, where they are short, several of a channel together, is
// added up in order. Where L = 1 threads take channels, a lane each, line after line, and sums go
// into doubles every kLines lines. Either way bits do not depend on the threads.

namespace lockstep::cpu {
namespace {

constexpr int64_t kLines = 64;
constexpr int64_t kPart = 256;  // values

struct Layout {
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

// f(at, n): the pieces of a part, in order.
template <class F>
void each_piece(const Layout& x, int64_t group, int64_t c, F f) {
  const int64_t first = group * x.together();
  for (int64_t sample = first; sample < std::min(x.samples, first + x.together()); ++sample) {
    const int64_t begin = (sample * x.channels + c) * x.positions;
    for (int64_t i = 0; i < x.positions; i += kRoom) f(begin + i, std::min(kRoom, x.positions - i));
  }
}
// f(group, c) for all parts, shared out.
template <class F>
void each_part(const Layout& x, F f) {
  parallel_for(x.parts(), x.part_grain(), [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) f(part / x.channels, part % x.channels);
  });
}
// f(c) for all channels, after what was found for each of their parts.
template <class F>
void each_channel(const Layout& x, F f) {
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

// Three numbers of each channel.
struct Statistics {
  const float *centre, *shift, *rstd;
  explicit Statistics(const Tensor& statistics)
      : centre(statistics.data<float>()),
        shift(centre + statistics.size(1)),
        rstd(shift + statistics.size(1)) {}
};
// (x - mean) · scale + offset is what is normalised, with gamma and beta.
struct Affine {
  PerChannel gamma, beta;
  Scratch<float> scale;
  Affine(std::string_view kernel, const Statistics& of, const Tensor& gamma_in,
         const Tensor& beta_in, int64_t channels)
      : gamma(kernel, "gamma", gamma_in, channels, 1),
        beta(kernel, "beta", beta_in, channels, 0),
        scale(channels) {
    for (int64_t c = 0; c < channels; ++c) scale[c] = of.rstd[c] * gamma.at[c];
  }
};

// f(c, at, n): n elements from `at` on, of channel c; in columns one each of channels c … c + n.
template <class F>
void each_stretch(const Layout& layout, F f) {
  if (layout.columns())
    channel_ranges(layout, [&](int64_t c, int64_t n) {
      for (int64_t sample = 0; sample < layout.samples; ++sample)
        f(c, sample * layout.channels + c, n);
    });
  else
    each_part(layout, [&](int64_t group, int64_t c) {
      each_piece(layout, group, c, [&](int64_t at, int64_t n) { f(c, at, n); });
    });
}

void apply(std::string_view name, BatchNormLoops::Apply* const (&loops)[2], const Tensor& y,
           const Tensor& x, const Tensor& addend, const Tensor& statistics, const Tensor& gamma,
           const Tensor& beta) {
  const Layout layout = layout_of(name, x);
  expect_same_floats(name, {&x, &y});
  if (addend.defined()) expect_same_floats(name, {&x, &addend});
  expect_statistics(name, statistics, layout.channels);
  const Statistics of(statistics);
  const Affine affine(name, of, gamma, beta, layout.channels);
  const FloatsIn in(x), more(addend);
  const FloatsOut to(y);
  BatchNormLoops::Apply* const loop = loops[layout.columns() ? 1 : 0];
  each_stretch(layout, [&](int64_t c, int64_t at, int64_t n) {
    Room from, addend_room, result;
    loop(to.place(at, result), in.read(at, n, from), more.read(at, n, addend_room), of.centre + c,
         of.shift + c, affine.scale.data() + c, affine.beta.at + c, n);
    to.write(at, n, result);
  });
}

void batch_norm(const Tensor& y, const Tensor& x, const Tensor& statistics, const Tensor& gamma,
                const Tensor& beta) {
  const auto& loops = LOCKSTEP_PICK_LOOPS(BatchNorm);
  apply("batch_norm", {loops.row_apply, loops.columns_apply}, y, x, {}, statistics, gamma, beta);
}
void batch_norm_relu(const Tensor& y, const Tensor& x, const Tensor& statistics,
                     const Tensor& gamma, const Tensor& beta, const Tensor& addend) {
  const auto& loops = LOCKSTEP_PICK_LOOPS(BatchNorm);
  if (addend.defined())
    apply("batch_norm_relu", {loops.row_apply_add_relu, loops.columns_apply_add_relu}, y, x, addend,
          statistics, gamma, beta);
  else
    apply("batch_norm_relu", {loops.row_apply_relu, loops.columns_apply_relu}, y, x, {}, statistics,
          gamma, beta);
}

// sums from row(plain, weighted, c, at, n) or columns(the same): doubles of a channel, floats of n.
template <class Row, class Columns>
void make_sums(std::string_view name, const Layout& layout, const Tensor& sums,
               const Tensor& statistics, Row row, Columns columns) {
  const int64_t channels = layout.channels;
  expect_statistics(name, statistics, channels);
  expect_dtype(name, "sums", sums, DType::f32);
  expect_shape(name, "sums", sums, {2, channels});
  const float* rstd = Statistics(statistics).rstd;
  float *plain = sums.mutable_data<float>(), *weighted = plain + channels;
  const auto store = [&](int64_t c, double sum, double product) {
    plain[c] = static_cast<float>(sum);
    weighted[c] = static_cast<float>(product * rstd[c]);
  };
  if (layout.columns()) {
    channel_ranges(layout, [&](int64_t first, int64_t n) {
      LaneSums<2> both(n);
      both.over_lines(layout, first, n,
                      [&](int64_t at) { columns(both.part[0], both.part[1], first, at, n); });
      for (int64_t i = 0; i < n; ++i) store(first + i, both.total[0][i], both.total[1][i]);
    });
    return;
  }
  const int64_t groups = layout.groups();
  const Scratch<double> plain_of(layout.parts()), weighted_of(layout.parts());
  each_part(layout, [&](int64_t group, int64_t c) {
    double sum = 0, product = 0;
    each_piece(layout, group, c, [&](int64_t at, int64_t n) { row(&sum, &product, c, at, n); });
    plain_of[c * groups + group] = sum, weighted_of[c * groups + group] = product;
  });
  each_channel(layout, [&](int64_t c) {
    double sum = 0, product = 0;
    for (int64_t i = c * groups; i < (c + 1) * groups; ++i)
      sum += plain_of[i], product += weighted_of[i];
    store(c, sum, product);
  });
}

void batch_norm_backward_sums(const Tensor& sums, const Tensor& dy, const Tensor& x,
                              const Tensor& statistics) {
  constexpr std::string_view kName = "batch_norm_backward_sums";
  const Layout layout = layout_of(kName, x);
  expect_same_floats(kName, {&x, &dy});
  const FloatsIn in(x), d(dy);
  const auto& loops = LOCKSTEP_PICK_LOOPS(BatchNorm);
  make_sums(
      kName, layout, sums, statistics,
      [&](double* plain, double* weighted, int64_t c, int64_t at, int64_t n) {
        const Statistics of(statistics);
        Room room, d_room;
        loops.row_sums(plain, weighted, d.read(at, n, d_room), in.read(at, n, room), of.centre[c],
                       of.shift[c], n);
      },
      [&](float* plain, float* weighted, int64_t c, int64_t at, int64_t n) {
        const Statistics of(statistics);
        Room room, d_room;
        loops.columns_sums(plain, weighted, d.read(at, n, d_room), in.read(at, n, room),
                           of.centre + c, of.shift + c, n);
      });
}

void batch_norm_relu_backward_sums(const Tensor& sums, const Tensor& dy, const Tensor& x,
                                   const Tensor& statistics, const Tensor& gamma,
                                   const Tensor& beta) {
  constexpr std::string_view kName = "batch_norm_relu_backward_sums";
  const Layout layout = layout_of(kName, x);
  expect_same_floats(kName, {&x, &dy});
  expect_statistics(kName, statistics, layout.channels);
  const Statistics of(statistics);
  const Affine affine(kName, of, gamma, beta, layout.channels);
  const float *scale = affine.scale.data(), *offset = affine.beta.at;
  const FloatsIn in(x), d(dy);
  const auto& loops = LOCKSTEP_PICK_LOOPS(BatchNorm);
  make_sums(
      kName, layout, sums, statistics,
      [&](double* plain, double* weighted, int64_t c, int64_t at, int64_t n) {
        Room room, d_room;
        loops.row_sums_relu(plain, weighted, d.read(at, n, d_room), in.read(at, n, room),
                            of.centre[c], of.shift[c], scale[c], offset[c], n);
      },
      [&](float* plain, float* weighted, int64_t c, int64_t at, int64_t n) {
        Room room, d_room;
        loops.columns_sums_relu(plain, weighted, d.read(at, n, d_room), in.read(at, n, room),
                                of.centre + c, of.shift + c, scale + c, offset + c, n);
      });
}

void batch_norm_add_relu_backward_sums(const Tensor& sums, const Tensor& through, const Tensor& dy,
                                       const Tensor& y, const Tensor& x, const Tensor& statistics) {
  constexpr std::string_view kName = "batch_norm_add_relu_backward_sums";
  const Layout layout = layout_of(kName, x);
  expect_same_floats(kName, {&x, &dy, &y, &through});
  expect_statistics(kName, statistics, layout.channels);
  const Statistics of(statistics);
  const FloatsIn in(x), d(dy), result(y);
  const FloatsOut to(through);
  const auto& loops = LOCKSTEP_PICK_LOOPS(BatchNorm);
  make_sums(
      kName, layout, sums, statistics,
      [&](double* plain, double* weighted, int64_t c, int64_t at, int64_t n) {
        Room room, d_room, y_room, passed;
        loops.row_sums_through(plain, weighted, to.place(at, passed), d.read(at, n, d_room),
                               result.read(at, n, y_room), in.read(at, n, room), of.centre[c],
                               of.shift[c], n);
        to.write(at, n, passed);
      },
      [&](float* plain, float* weighted, int64_t c, int64_t at, int64_t n) {
        Room room, d_room, y_room, passed;
        loops.columns_sums_through(plain, weighted, to.place(at, passed), d.read(at, n, d_room),
                                   result.read(at, n, y_room), in.read(at, n, room), of.centre + c,
                                   of.shift + c, n);
        to.write(at, n, passed);
      });
}

void backward(std::string_view name, BatchNormLoops::Backward* const (&loops)[2], const Tensor& dx,
              const Tensor& dy, const Tensor& x, const Tensor& statistics, const Tensor& gamma,
              const Tensor& beta, const Tensor& sums, int64_t count) {
  const Layout layout = layout_of(name, x);
  expect_same_floats(name, {&x, &dx, &dy});
  expect_statistics(name, statistics, layout.channels);
  const int64_t channels = layout.channels;
  if (sums.defined()) {
    expect_dtype(name, "sums", sums, DType::f32);
    expect_shape(name, "sums", sums, {2, channels});
    check(count >= layout.count(), "[kernel.{}] count; expected {} or more, got {}", name,
          layout.count(), count);
  }
  if (layout.count() == 0) return;
  const Statistics of(statistics);
  const Affine affine(name, of, gamma, beta, channels);
  const Scratch<float> mean(channels), slope(channels);
  const float* s = sums.defined() ? sums.data<float>() : nullptr;
  for (int64_t c = 0; c < channels; ++c) {
    const auto all = static_cast<double>(count);
    mean[c] = s ? static_cast<float>(s[c] / all) : 0.0f;
    slope[c] = s ? static_cast<float>(double{s[channels + c]} * of.rstd[c] / all) : 0.0f;
  }
  const FloatsIn in(x), d(dy);
  const FloatsOut to(dx);
  BatchNormLoops::Backward* const loop = loops[layout.columns() ? 1 : 0];
  each_stretch(layout, [&](int64_t c, int64_t at, int64_t n) {
    Room from, d_room, result;
    loop(to.place(at, result), d.read(at, n, d_room), in.read(at, n, from), of.centre + c,
         of.shift + c, affine.scale.data() + c, affine.beta.at + c, mean.data() + c,
         slope.data() + c, n);
    to.write(at, n, result);
  });
}

void batch_norm_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                         const Tensor& statistics, const Tensor& gamma, const Tensor& sums,
                         int64_t count) {
  const auto& loops = LOCKSTEP_PICK_LOOPS(BatchNorm);
  backward("batch_norm_backward", {loops.row_backward, loops.columns_backward}, dx, dy, x,
           statistics, gamma, {}, sums, count);
}
void batch_norm_relu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                              const Tensor& statistics, const Tensor& gamma, const Tensor& beta,
                              const Tensor& sums, int64_t count) {
  const auto& loops = LOCKSTEP_PICK_LOOPS(BatchNorm);
  backward("batch_norm_relu_backward", {loops.row_backward_relu, loops.columns_backward_relu}, dx,
           dy, x, statistics, gamma, beta, sums, count);
}

const Provide provided[] = {
    {kernel::channel_moments, DeviceType::cpu, channel_moments},
    {kernel::merge_moments, DeviceType::cpu, merge_moments},
    {kernel::batch_statistics, DeviceType::cpu, batch_statistics},
    {kernel::fixed_statistics, DeviceType::cpu, fixed_statistics},
    {kernel::update_running, DeviceType::cpu, update_running},
    {kernel::batch_norm, DeviceType::cpu, batch_norm},
    {kernel::batch_norm_relu, DeviceType::cpu, batch_norm_relu},
    {kernel::batch_norm_backward_sums, DeviceType::cpu, batch_norm_backward_sums},
    {kernel::batch_norm_relu_backward_sums, DeviceType::cpu, batch_norm_relu_backward_sums},
    {kernel::batch_norm_add_relu_backward_sums, DeviceType::cpu, batch_norm_add_relu_backward_sums},
    {kernel::batch_norm_backward, DeviceType::cpu, batch_norm_backward},
    {kernel::batch_norm_relu_backward, DeviceType::cpu, batch_norm_relu_backward},
};

}  // namespace
}  // namespace lockstep::cpu
