#include "core/kernels/softmax_xent.h"

#include "core/kernels/elementwise.h"
#include "tests/support/kernel_calls.h"
#include "tests/support/kernel_test.h"
#include "tests/support/naive.h"

namespace lockstep::test {
namespace {

class Softmax : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Softmax);

TEST_P(Softmax, OfAllShapes) {
  for (int64_t rows : {0, 1, 70})
    for (int64_t width : {1, 2, 15, 16, 17, 65, 256, 1000}) {
      const Tensor x = random_tensor({rows, width}, 1, 5, Placed::unaligned), y = empty_like(x);
      kernel::softmax(y, x);
      const std::vector<double> expected = naive::softmax(doubles(x), rows, width);
      expect_close(y, expected, 5e-6, 1e-30);  // half an ulp of x - max, which may be 40

      const Tensor dy = random_tensor({rows, width}, 2), dx = empty_like(x);
      kernel::softmax_backward(dx, dy, y);
      const std::vector<double> d = doubles(dy);
      std::vector<double> gradient(d.size());
      for (int64_t r = 0; r < rows; ++r) {
        double dot = 0;
        for (int64_t c = 0; c < width; ++c) dot += d[r * width + c] * expected[r * width + c];
        for (int64_t c = 0; c < width; ++c)
          gradient[r * width + c] = expected[r * width + c] * (d[r * width + c] - dot);
      }
      expect_close(dx, gradient, 1e-5, 1e-6);
    }
}

TEST_P(Softmax, EqualRowsAndMaskedRows) {
  for (float level : {0.0f, 1e30f, -1e30f, 3.4e38f}) {
    const Tensor y = zeros({1, 5});
    kernel::softmax(y, full({1, 5}, level));
    expect_close(y, std::vector<double>(5, 0.2), 1e-6, 0);
  }
  const Tensor x = from_values<float>({-INFINITY, -INFINITY, -INFINITY, 1, -INFINITY, 1}, {2, 3}),
               y = zeros({2, 3});
  kernel::softmax(y, x);
  EXPECT_EQ(values(y), (std::vector<float>{0, 0, 0, 0.5, 0, 0.5}));
}

TEST_P(Softmax, CrossEntropyOfAllShapesAndBothTargetTypes) {
  for (int64_t rows : {0, 1, 70})
    for (int64_t width : {1, 2, 16, 17, 65, 256, 1000})
      for (double sd : {1.0, 30.0}) {  // beyond 16 the backward sums the row again
        const Tensor x = random_tensor({rows, width}, 3, sd, Placed::unaligned);
        std::vector<int32_t> narrow(rows);
        std::vector<int64_t> wide(rows);
        for (int64_t r = 0; r < rows; ++r)
          wide[r] = narrow[r] = r % 7 == 3 ? -1 : static_cast<int32_t>(r * 31 % width);
        const Entropy e = cross_entropy(x, from_values(wide), -1),
                      f = cross_entropy(x, from_values(narrow), -1);
        EXPECT_EQ(values(e.losses), values(f.losses));
        EXPECT_EQ(values(e.dlogits), values(f.dlogits));
        const std::vector<double> v = doubles(x);
        std::vector<double> losses(rows), gradient = naive::softmax(v, rows, width);
        for (int64_t r = 0; r < rows; ++r) {
          if (wide[r] == -1) {
            std::fill_n(gradient.begin() + r * width, width, 0.0);
            continue;
          }
          losses[r] = naive::log_sum_exp(&v[r * width], width) - v[r * width + wide[r]];
          gradient[r * width + wide[r]] -= 1;
        }
        expect_close(e.losses, losses, 2e-6, 2e-6);
        expect_close(e.dlogits, gradient, 1e-5, 3e-7);
      }
}

TEST_P(Softmax, IgnoredRowsAreExactlyZeroWhateverTheyHold) {
  const Tensor x = from_values<float>({NAN, INFINITY, 1, 2}, {2, 2});
  const Entropy e = cross_entropy(x, from_values<int64_t>({-1, 0}), -1);
  EXPECT_EQ(values(e.losses)[0], 0);
  EXPECT_EQ(values(e.dlogits.slice(0, 1)), std::vector<float>(2, 0.0f));
  EXPECT_TRUE(std::isfinite(values(e.losses)[1]));
}

TEST_P(Softmax, BceOfAllSizes) {
  for (int64_t n : odd_sizes()) {
    const Tensor x = random_tensor({n}, 4, 5, Placed::unaligned), t = Tensor::empty({n}),
                 losses = empty_like(x), dx = empty_like(x);
    const Random random(5, RandomStream::tests);
    for (int64_t i = 0; i < n; ++i) t.mutable_data<float>()[i] = random.uniform(i);
    kernel::bce_with_logits(losses, x, t);
    kernel::bce_with_logits_backward(dx, full({1}, 0.5), x, t);
    const std::vector<double> v = doubles(x), target = doubles(t);
    std::vector<double> loss(n), gradient(n);
    for (int64_t i = 0; i < n; ++i) {
      loss[i] = std::max(v[i], 0.0) - v[i] * target[i] + std::log1p(std::exp(-std::abs(v[i])));
      gradient[i] = 0.5 * (1 / (1 + std::exp(-v[i])) - target[i]);
    }
    expect_close(losses, loss, 1e-6, 2e-6);
    expect_close(dx, gradient, 1e-6, 1e-7);
  }
}

}  // namespace
}  // namespace lockstep::test
