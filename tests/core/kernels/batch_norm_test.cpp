#include "core/kernels/batch_norm.h"

#include "core/kernels/elementwise.h"
#include "tests/support/kernel_test.h"

namespace lockstep::test {
namespace {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;
constexpr float kEps = 1e-5f;

class BatchNorm : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(BatchNorm);
class KnownFaultsOfBatchNorm : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(KnownFaultsOfBatchNorm);

Tensor moments_of(const Tensor& x) {
  const Tensor moments = full({3, x.size(1)}, NAN);
  kernel::channel_moments(moments, x);
  return moments;
}
Tensor statistics_of(const Tensor& x) {
  const Tensor statistics = full({3, x.size(1)}, NAN);
  kernel::batch_statistics(statistics, moments_of(x), x.numel() / x.size(1), kEps);
  return statistics;
}

// The textbook's formulas in double.
struct Naive {
  int64_t samples, channels, positions, count;
  Doubles x, mean, m2, rstd;
  explicit Naive(const Tensor& in)
      : samples(in.size(0)),
        channels(in.size(1)),
        positions(in.numel() / std::max<int64_t>(1, samples * channels)),
        count(samples * positions),
        x(doubles(in)),
        mean(channels),
        m2(channels),
        rstd(channels) {
    each([&](size_t i, size_t c) { mean[c] += x[i] / static_cast<double>(count); });
    each([&](size_t i, size_t c) { m2[c] += (x[i] - mean[c]) * (x[i] - mean[c]); });
    for (size_t c = 0; c < rstd.size(); ++c)
      rstd[c] = 1 / std::sqrt(m2[c] / static_cast<double>(count) + kEps);
  }
  template <class F>
  void each(F f) const {
    for (size_t i = 0; i < x.size(); ++i)
      f(i, i / static_cast<size_t>(positions) % static_cast<size_t>(channels));
  }
  double normed(size_t i, size_t c) const { return (x[i] - mean[c]) * rstd[c]; }
};

const std::vector<Shape> kShapes = {{2, 1},      {5, 3},       {70, 17},    {200, 40},
                                    {3, 2100},   {1, 2, 3},    {4, 3, 7},   {2, 5, 4, 4},
                                    {3, 17, 33}, {2, 3, 1500}, {1, 1, 5000}};

TEST_P(BatchNorm, MomentsOfAllShapes) {
  for (const Shape& shape : kShapes)
    for (Placed placed : {Placed::aligned, Placed::unaligned}) {
      const Tensor x = random_tensor(shape, 1, 2, placed), moments = moments_of(x);
      const Naive naive(x);
      expect_close(moments.slice(0, 1), naive.mean, 1e-6, 1e-6, "mean");
      expect_close(moments.slice(2, 3), naive.m2, 2e-6, 1e-6, "M2");
    }
}

TEST_P(BatchNorm, ForwardOfAllShapes) {
  for (const Shape& shape : kShapes) {
    const Tensor x = random_tensor(shape, 2, 2), gamma = random_tensor({shape[1]}, 3),
                 beta = random_tensor({shape[1]}, 4), y = full(shape, NAN);
    const Naive naive(x);
    for (const auto& [g, b] : {std::pair{gamma, beta}, {gamma, Tensor()}, {Tensor(), beta}, {}}) {
      kernel::batch_norm(y, x, statistics_of(x), g, b);
      const Doubles scale = g.defined() ? doubles(g) : Doubles(naive.mean.size(), 1),
                    offset = b.defined() ? doubles(b) : Doubles(naive.mean.size(), 0);
      Doubles expected(naive.x.size());
      naive.each(
          [&](size_t i, size_t c) { expected[i] = naive.normed(i, c) * scale[c] + offset[c]; });
      expect_close(y, expected, 1e-5, 1e-5, "y");
    }
  }
}

TEST_P(BatchNorm, BackwardOfAllShapes) {
  for (const Shape& shape : kShapes) {
    const Tensor x = random_tensor(shape, 5), gamma = random_tensor({shape[1]}, 6),
                 dy = random_tensor(shape, 7), dx = full(shape, NAN),
                 sums = full({2, shape[1]}, NAN), statistics = statistics_of(x);
    const Naive naive(x);
    const Doubles d = doubles(dy), g = doubles(gamma);
    Doubles plain(g.size()), weighted(g.size()), expected(d.size()), frozen(d.size());
    naive.each([&](size_t i, size_t c) {
      plain[c] += d[i];
      weighted[c] += d[i] * naive.normed(i, c);
    });
    double largest = 0;
    naive.each([&](size_t i, size_t c) {
      const auto n = static_cast<double>(naive.count);
      frozen[i] = g[c] * naive.rstd[c] * d[i];
      expected[i] =
          g[c] * naive.rstd[c] * (d[i] - plain[c] / n - naive.normed(i, c) * weighted[c] / n);
      largest = std::max(largest, std::abs(frozen[i]));
    });
    kernel::batch_norm_backward_sums(sums, dy, x, statistics);
    expect_close(sums.slice(0, 1), plain, 1e-5, 2e-5, "sum of dy");
    expect_close(sums.slice(1, 2), weighted, 1e-5, 5e-5, "sum of dy times x");
    kernel::batch_norm_backward(dx, dy, x, statistics, gamma, sums, naive.count);
    expect_close(dx, expected, 1e-5, 3e-6 * largest, "dx");
    kernel::batch_norm_backward(dx, dy, x, statistics, gamma, Tensor(), 0);
    expect_close(dx, frozen, 1e-5, 0, "dx of constant statistics");
  }
}

// One pass after the other, with plain loops for what is not a normalisation.
TEST_P(BatchNorm, WithReluIsOnePassAfterTheOther) {
  for (const Shape& shape : kShapes)
    for (bool with_addend : {false, true}) {
      const Tensor x = random_tensor(shape, 1, 2), gamma = random_tensor({shape[1]}, 2),
                   beta = random_tensor({shape[1]}, 3), dy = random_tensor(shape, 4),
                   addend = with_addend ? random_tensor(shape, 5) : Tensor(),
                   statistics = statistics_of(x);
      const int64_t count = x.numel() / shape[1];
      const Tensor normed = full(shape, NAN), d = full(shape, NAN), sums = full({2, shape[1]}, NAN),
                   dx = full(shape, NAN);
      kernel::batch_norm(normed, x, statistics, gamma, beta);
      float* v = normed.mutable_data<float>();
      for (int64_t i = 0; i < x.numel(); ++i) {
        if (with_addend) v[i] += addend.data<float>()[i];
        v[i] = std::max(v[i], 0.0f);
        d.mutable_data<float>()[i] = v[i] > 0 ? dy.data<float>()[i] : 0.0f;
      }
      kernel::batch_norm_backward_sums(sums, d, x, statistics);
      kernel::batch_norm_backward(dx, d, x, statistics, gamma, sums, count);

      const Tensor y = full(shape, NAN), fused_sums = full({2, shape[1]}, NAN),
                   fused_dx = full(shape, NAN), through = full(shape, NAN);
      kernel::batch_norm_relu(y, x, statistics, gamma, beta, addend);
      EXPECT_EQ(values(y), values(normed));
      if (with_addend) {
        kernel::batch_norm_add_relu_backward_sums(fused_sums, through, dy, y, x, statistics);
        EXPECT_EQ(values(through), values(d));
      } else {
        kernel::batch_norm_relu_backward_sums(fused_sums, dy, x, statistics, gamma, beta);
        kernel::batch_norm_relu_backward(fused_dx, dy, x, statistics, gamma, beta, fused_sums,
                                         count);
        EXPECT_EQ(values(fused_dx), values(dx));
      }
      EXPECT_EQ(values(fused_sums), values(sums));
    }
}

TEST_P(BatchNorm, ReluHidesNoNan) {
  const Tensor x = from_values<float>({NAN, 1, 2, 3}, {2, 2}), y = zeros({2, 2});
  kernel::batch_norm_relu(y, x, full({3, 2}, 1), {}, {}, {});
  EXPECT_TRUE(std::isnan(values(y)[0]));
  kernel::batch_norm_relu(y, x, full({3, 2}, 1), {}, {}, full({2, 2}, -9));
  EXPECT_TRUE(std::isnan(values(y)[0]));
}

// The same memory as [N·L, C], and its copy as [N, C, L], have the same channels.
TEST_P(BatchNorm, LanesAndRowsAgree) {
  const int64_t samples = 5, channels = 19, positions = 37;
  const Tensor lines = random_tensor({samples * positions, channels}, 8),
               planes = Tensor::empty({samples, channels, positions});
  const float* from = lines.data<float>();
  float* to = planes.mutable_data<float>();
  for (int64_t n = 0; n < samples; ++n)
    for (int64_t l = 0; l < positions; ++l)
      for (int64_t c = 0; c < channels; ++c)
        to[(n * channels + c) * positions + l] = from[(n * positions + l) * channels + c];
  const Floats a = values(moments_of(lines)), b = values(moments_of(planes));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6 * (std::abs(a[i]) + 0.1)) << i;
}

TEST_P(BatchNorm, BitsDoNotDependOnTheThreads) {
  for (const Shape& shape : {Shape{600, 300}, Shape{8, 33, 400}}) {
    const Tensor x = random_tensor(shape, 9), dy = random_tensor(shape, 10),
                 statistics = statistics_of(x);
    const auto run = [&](int threads) {
      const ThreadBudget budget(threads);
      const Tensor sums = Tensor::empty({2, shape[1]}), dx = empty_like(x);
      kernel::batch_norm_backward_sums(sums, dy, x, statistics);
      kernel::batch_norm_backward(dx, dy, x, statistics, Tensor(), sums, x.numel() / shape[1]);
      return std::tuple{values(moments_of(x)), values(sums), values(dx)};
    };
    EXPECT_EQ(run(1), run(2));
    EXPECT_EQ(run(1), run(3));
  }
}

TEST_P(BatchNorm, MergedPartsAreTheWhole) {
  const int64_t channels = 6;
  const Tensor x = random_tensor({50, channels}, 11, 3);
  for (int64_t i = 0; i < x.numel(); ++i) x.mutable_data<float>()[i] += 1000.0f;
  const std::vector<int64_t> counts = {7, 0, 1, 30, 12};
  const Tensor parts = Tensor::empty({5, 3, channels}), merged = full({3, channels}, NAN);
  int64_t begin = 0;
  for (size_t p = 0; p < counts.size(); ++p) {
    kernel::copy(parts.slice(p, p + 1), moments_of(x.slice(begin, begin + counts[p])));
    begin += counts[p];
  }
  kernel::merge_moments(merged, parts, counts);
  const Naive naive(x);
  expect_close(merged.slice(0, 1), naive.mean, 1e-7, 0, "mean");
  expect_close(merged.slice(2, 3), naive.m2, 2e-6, 0, "M2");

  const Tensor one = moments_of(x), alone = full({3, channels}, NAN);
  kernel::merge_moments(alone, one.reshape({1, 3, channels}), std::vector<int64_t>{50});
  EXPECT_EQ(values(alone), values(one)) << "one part is the whole, bit for bit";
  kernel::merge_moments(alone, one.reshape({1, 3, channels}), std::vector<int64_t>{0});
  EXPECT_EQ(values(alone), Floats(3 * channels, 0.0f)) << "no values";
}

TEST_P(BatchNorm, RunningValuesAreLeftAloneByMomentsThatAreNotFinite) {
  const Tensor x = from_values<float>({1, INFINITY, 3, 3}, {2, 2}), mean = zeros({2}),
               variance = full({2}, 1);
  kernel::update_running(mean, variance, moments_of(x), 2, 0.5);
  EXPECT_EQ(values(mean), (Floats{1, 0}));
  EXPECT_EQ(values(variance), (Floats{1.5, 1}));
}

TEST_P(BatchNorm, RefusesWhatHasNoChannelsOrNoVariance) {
  const Tensor one = zeros({1}), moments = zeros({3, 1});
  EXPECT_EQ(error_of<UsageError>([&] { kernel::channel_moments(moments, zeros({4})); }),
            "[kernel.channel_moments] expected [N, C, ...] with at least one channel, got [4]");
  EXPECT_EQ(error_of<UsageError>([&] { kernel::update_running(one, one, moments, 1, 0.1); }),
            "[kernel.update_running] expected a count of at least 2, got 1");
}

TEST_P(KnownFaultsOfBatchNorm, O28_ALargeMean) {
  for (const Shape& shape : {Shape{4, 2}, Shape{1, 2, 4}, Shape{2, 2, 2}}) {
    // Channel 0 holds 40000 … 40003, channel 1 is constant.
    const Tensor x = Tensor::empty(shape), gamma = full({2}, 1), y = empty_like(x),
                 dx = empty_like(x), sums = Tensor::empty({2, 2});
    const Naive order(zeros(shape));
    Doubles expected(8);
    const Doubles normed = {-1.3416354, -0.4472118, 0.4472118, 1.3416354};
    size_t next = 0;
    order.each([&](size_t i, size_t c) {
      expected[i] = c == 0 ? normed[next] : 0;
      x.mutable_data<float>()[i] = 40000.0f + static_cast<float>(c == 0 ? next++ : 0);
    });
    const Tensor statistics = statistics_of(x);
    kernel::batch_norm(y, x, statistics, gamma, zeros({2}));
    expect_close(y, expected, 0, 1e-4);
    order.each([&](size_t i, size_t c) {
      if (c == 1) {
        EXPECT_EQ(values(y)[i], 0) << "a constant channel gives exactly 0";
      }
    });
    const Tensor dy = random_tensor(shape, 15);
    kernel::batch_norm_backward_sums(sums, dy, x, statistics);
    kernel::batch_norm_backward(dx, dy, x, statistics, gamma, sums, 4);
    for (float v : values(dx)) EXPECT_TRUE(std::isfinite(v));
  }
}

TEST_P(KnownFaultsOfBatchNorm, O28_VarianceOfManyCloseNumbers) {
  for (const Shape& shape : {Shape{32768, 1}, Shape{8, 1, 4096}}) {
    const Tensor x = random_tensor(shape, 16, 0.01);
    for (int64_t i = 0; i < x.numel(); ++i) x.mutable_data<float>()[i] += 100.0f;
    const Floats moments = values(moments_of(x));
    EXPECT_NEAR(moments[2] / 32768, 1e-4, 1e-6) << "E[x^2] - E[x]^2 would give 0";
    EXPECT_NEAR(moments[0], 100, 1e-3);
  }
}

}  // namespace
}  // namespace lockstep::test
