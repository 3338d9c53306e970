#include "core/kernels/batch_norm.h"

#include "core/kernels/cpu/batch_norm_loops.h"
#include "core/kernels/cpu/channel_layout.h"

namespace lockstep::cpu {
namespace {

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
void each_stretch(const ChannelLayout& layout, F f) {
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
  const ChannelLayout layout = layout_of(name, x);
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
void make_sums(std::string_view name, const ChannelLayout& layout, const Tensor& sums,
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
  const ChannelLayout layout = layout_of(kName, x);
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
  const ChannelLayout layout = layout_of(kName, x);
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
  const ChannelLayout layout = layout_of(kName, x);
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
  const ChannelLayout layout = layout_of(name, x);
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
