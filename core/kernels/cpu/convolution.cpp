#include "core/kernels/convolution.h"

#include "core/kernels/cpu/floats.h"
#include "core/kernels/cpu/plane_convolution.h"
#include "core/kernels/cpu/reduce_loops.h"

#include <type_traits>

namespace lockstep::kernel {

Shape conv2d_shape(const Shape& x, const Shape& weight, const Convolution& o) {
  check(x.rank() == 4 && weight.rank() == 4,
        "[kernel.conv2d] expected images [N, C, rows, columns] and a weight [K, C / groups, rows, "
        "columns], got {} and {}",
        x, weight);
  check(o.groups >= 1 && x[1] % o.groups == 0 && weight[0] % o.groups == 0,
        "[kernel.conv2d] groups; expected a divisor of {} input and {} output channels, got {}",
        x[1], weight[0], o.groups);
  check(x[1] >= 1 && weight[0] >= 1 && weight[1] == x[1] / o.groups,
        "[kernel.conv2d] channels of a weight {} for images {}; expected {} in each of {} groups",
        weight, x, x[1] / o.groups, o.groups);
  return {
      x[0], weight[0],
      count_windows("conv2d", x[2], {weight[2], o.stride.rows, o.padding.rows, o.dilation.rows}),
      count_windows("conv2d", x[3],
                    {weight[3], o.stride.columns, o.padding.columns, o.dilation.columns})};
}

}  // namespace lockstep::kernel

namespace lockstep::cpu {
namespace {

using kernel::Convolution;
using Pass = ConvolutionKey::Pass;

// Of operands that were checked: x is [N, C, …], y what conv2d_shape says.
ConvolutionKey key_of(Pass pass, const Tensor& x, const Tensor& weight, const Tensor& y, bool bias,
                      const Convolution& options) {
  return {pass,
          1,
          x.size(1),
          y.size(1),
          {x.size(2), x.size(3)},
          {y.size(2), y.size(3)},
          {weight.size(2), weight.size(3)},
          options,
          bias};
}

void expect_convolution(std::string_view name, const Tensor& y, const Tensor& x,
                        const Tensor& weight, const Convolution& options) {
  expect_floats(name, {&y, &x, &weight});
  expect_shape(name, "the result of the convolution", y,
               kernel::conv2d_shape(x.shape(), weight.shape(), options));
}

int64_t x_floats(const ConvolutionKey& key) { return key.in * key.x.size(); }
int64_t y_floats(const ConvolutionKey& key) { return key.out * key.y.size(); }

// Images below which a thread is not worth waking.
int64_t grain(const ConvolutionKey& key) {
  const double adds = static_cast<double>(y_floats(key)) * static_cast<double>(key.in) /
                      static_cast<double>(key.options.groups) *
                      static_cast<double>(key.window.size());
  return std::max<int64_t>(1, static_cast<int64_t>((1 << 20) / (adds + 1)));
}

// f(key, begin, end) for images [begin, end) in runs of a number that divides them.
template <class Run, class F>
void in_runs(ConvolutionKey key, int64_t begin, int64_t end, F f) {
  const int64_t together = std::min(Run::images_together(key), end - begin);
  const int64_t rest = (end - begin) % together;
  key.images = together;
  f(key, begin, end - rest);
  key.images = rest;
  if (rest > 0) f(key, end - rest, end);
}

// f(std::type_identity<Run>) with who convolves fastest.
template <class F>
void with_run(const ConvolutionKey& key, F f) {
  if (PlaneConvolutionRun::fits(key))
    f(std::type_identity<PlaneConvolutionRun>());
  else
    f(std::type_identity<ConvolutionRun>());
}

// Images through a pass that gives images.
template <class Run>
void map_images(const ConvolutionKey& key, const Tensor& result, int64_t result_floats,
                const Tensor& operand, int64_t operand_floats, const float* weight,
                const float* bias) {
  const FloatsIn from(operand);
  const FloatsOut to(result);
  parallel_for(result.size(0), grain(key), [&](int64_t begin, int64_t end) {
    in_runs<Run>(key, begin, end, [&](const ConvolutionKey& run, int64_t first, int64_t last) {
      const int64_t in = run.images * operand_floats, out = run.images * result_floats;
      const Scratch<float> wide_in(from.narrow() ? in : 0), wide_out(to.narrow() ? out : 0);
      Run convolve(run, weight, bias);
      for (int64_t i = first; i < last; i += run.images) {
        float* at = to.place(i * result_floats, wide_out.data());
        convolve(at, from.read(i * operand_floats, in, wide_in.data()));
        to.write(i * result_floats, out, at);
      }
    });
  });
}

void conv2d(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
            const Convolution& options) {
  expect_convolution("conv2d", y, x, weight, options);
  if (bias.defined()) expect_float_vector("conv2d", "bias", bias, weight.size(0));
  const ConvolutionKey key = key_of(Pass::forward, x, weight, y, bias.defined(), options);
  const Widened w(weight), b(bias);
  with_run(key, [&](auto run) {
    map_images<typename decltype(run)::type>(key, y, y_floats(key), x, x_floats(key), w.data(),
                                             b.data());
  });
}

void conv2d_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                           const Convolution& options) {
  expect_convolution("conv2d_backward_input", dy, dx, weight, options);
  const ConvolutionKey key = key_of(Pass::to_input, dx, weight, dy, false, options);
  const Widened w(weight);
  with_run(key, [&](auto run) {
    map_images<typename decltype(run)::type>(key, dx, x_floats(key), dy, y_floats(key), w.data(),
                                             nullptr);
  });
}

// sum[k] += Σ over the images of a run and the plane of channel k.
void add_planes(double* sum, const float* dy, const ConvolutionKey& run) {
  const auto& loops = LOCKSTEP_PICK_LOOPS(Reduce);
  for (int64_t i = 0; i < run.images * run.out; ++i)
    sum[i % run.out] += loops.sum.f32(dy + i * run.y.size(), run.y.size());
}

void conv2d_backward_weight(const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                            const Tensor& x, const Convolution& options) {
  constexpr std::string_view kName = "conv2d_backward_weight";
  expect_convolution(kName, dy, x, dweight, options);
  if (dbias.defined()) expect_float_vector(kName, "dbias", dbias, dweight.size(0));
  const ConvolutionKey key = key_of(Pass::to_weight, x, dweight, dy, false, options);
  const FloatsIn from_x(x), from_dy(dy);
  const Rounded sum(dweight), bias_sum(dbias);
  // Each piece of the batch has sums of its own, which are then added in order of pieces.
  const int64_t n = dweight.numel(), channels = dbias.defined() ? key.out : 0;
  const int pieces = parallel_pieces(x.size(0), grain(key));
  const Scratch<float> sums(checked_mul(pieces, n));
  const Scratch<double> bias_sums(checked_mul(pieces, channels));
  std::fill_n(sums.data(), pieces * n, 0.0f);
  std::fill_n(bias_sums.data(), pieces * channels, 0.0);
  with_run(key, [&](auto kind) {
    using Run = typename decltype(kind)::type;
    parallel_for(x.size(0), grain(key), [&](int64_t begin, int64_t end, int piece) {
      in_runs<Run>(key, begin, end, [&](const ConvolutionKey& run, int64_t first, int64_t last) {
        const int64_t of_x = run.images * x_floats(key), of_y = run.images * y_floats(key);
        const Scratch<float> wide_x(from_x.narrow() ? of_x : 0),
            wide_dy(from_dy.narrow() ? of_y : 0);
        Run convolve(run, nullptr, nullptr);
        for (int64_t i = first; i < last; i += run.images) {
          const float* d = from_dy.read(i * y_floats(key), of_y, wide_dy.data());
          convolve.add(d, from_x.read(i * x_floats(key), of_x, wide_x.data()));
          if (channels > 0) add_planes(bias_sums.data() + piece * channels, d, run);
        }
        convolve.take(sums.data() + piece * n);
      });
    });
  });
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int piece = 1; piece < pieces; ++piece)
      for (int64_t i = begin; i < end; ++i) sums[i] += sums[piece * n + i];
    std::copy(sums.data() + begin, sums.data() + end, sum.data() + begin);
  });
  sum.store();
  for (int64_t k = 0; k < channels; ++k) {
    for (int piece = 1; piece < pieces; ++piece) bias_sums[k] += bias_sums[piece * channels + k];
    bias_sum.data()[k] = static_cast<float>(bias_sums[k]);
  }
  bias_sum.store();
}

const Provide provided[] = {
    {kernel::conv2d, DeviceType::cpu, conv2d},
    {kernel::conv2d_backward_input, DeviceType::cpu, conv2d_backward_input},
    {kernel::conv2d_backward_weight, DeviceType::cpu, conv2d_backward_weight},
};

}  // namespace
}  // namespace lockstep::cpu
