#include "core/kernels/softmax_xent.h"

#include "core/kernels/elementwise.h"
#include "tests/support/kernel_test.h"
#include "tests/support/naive.h"

namespace lockstep::test {
namespace {

constexpr int64_t kNoIgnore = -100;

class Softmax : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Softmax);

struct Entropy {
  Tensor losses, lse, dlogits;
};
// Forward and backward with a gradient of 1.
Entropy cross_entropy(const Tensor& logits, const Tensor& targets, int64_t ignore = kNoIgnore) {
  const Entropy e{full({logits.size(0)}, NAN), full({logits.size(0)}, NAN),
                  full(logits.shape(), NAN)};
  kernel::softmax_cross_entropy(e.losses, e.lse, logits, targets, ignore);
  kernel::softmax_cross_entropy_backward(e.dlogits, full({1}, 1), logits, e.lse, targets, ignore);
  return e;
}

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

TEST_P(Softmax, KnownFaults_O27_CrossEntropyExtremes) {
  const Tensor x = from_values<float>({10, 0, -100, 50, 0, -120}, {2, 3}),
               targets = from_values<int64_t>({2, 2});
  const Entropy e = cross_entropy(x, targets);
  EXPECT_FLOAT_EQ(values(e.losses)[0], 110.0000454f);
  EXPECT_EQ(values(e.losses)[1], 170);
  EXPECT_EQ(values(e.dlogits)[2], -1);
  EXPECT_EQ(values(e.dlogits)[5], -1);
  for (float v : values(e.dlogits)) EXPECT_TRUE(std::isfinite(v));

  // All equal to 1e30: log C, and 1/C in the gradient.
  const Entropy flat = cross_entropy(full({1, 5}, 1e30), from_values<int64_t>({3}));
  EXPECT_FLOAT_EQ(values(flat.losses)[0], std::log(5.0f));
  expect_close(flat.dlogits, {0.2, 0.2, 0.2, -0.8, 0.2}, 1e-6, 0);

  // The range of half precision.
  const Entropy wide =
      cross_entropy(from_values<float>({60000, -60000}, {1, 2}), from_values<int64_t>({1}));
  EXPECT_EQ(values(wide.losses)[0], 120000);
  EXPECT_EQ(values(wide.dlogits), (std::vector<float>{1, -1}));

  // All rows ignored: exactly 0 with zero gradient.
  const Entropy none = cross_entropy(x, from_values<int64_t>({-1, -1}), -1);
  EXPECT_EQ(values(none.losses), std::vector<float>(2, 0.0f));
  EXPECT_EQ(values(none.dlogits), std::vector<float>(6, 0.0f));
}

TEST_P(Softmax, KnownFaults_O27_BceExtremes) {
  const Tensor x = from_values<float>({1000, -50, 0, -1000, 30}),
               t = from_values<float>({0, 1, 0.5, 0, 1}), losses = zeros({5}), dx = zeros({5});
  kernel::bce_with_logits(losses, x, t);
  kernel::bce_with_logits_backward(dx, full({1}, 1), x, t);
  expect_close(losses, {1000, 50, std::log(2.0), 0, std::log1p(std::exp(-30.0))}, 1e-6, 0);
  expect_close(dx, {1, -1, 0, 0, -1 / (1 + std::exp(30.0))}, 1e-6, 1e-7);
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

TEST_P(Softmax, KnownFaults_O24_LabelsOutOfRange) {
  const Tensor logits = random_tensor({3, 5}, 6);
  for (int64_t bad : {int64_t{5}, int64_t{-1}, int64_t{-4}, int64_t{1} << 40, int64_t{1} << 31,
                      (int64_t{1} << 32) + 3}) {
    const Tensor targets = from_values<int64_t>({0, 4, bad}), losses = full({3}, 7),
                 lse = full({3}, 7), dlogits = full({3, 5}, 7);
    const std::string text = error_of<UsageError>(
        [&] { kernel::softmax_cross_entropy(losses, lse, logits, targets, kNoIgnore); });
    EXPECT_NE(text.find("row 2"), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(bad)), std::string::npos) << text;
    EXPECT_THROW(kernel::softmax_cross_entropy_backward(dlogits, full({1}, 1), logits, lse, targets,
                                                        kNoIgnore),
                 UsageError);
    for (const Tensor& untouched : {losses, lse, dlogits})
      for (float v : values(untouched)) EXPECT_EQ(v, 7) << "nothing may be written";
  }
  // Only the configured value is exempt.
  const Tensor losses = zeros({3}), lse = zeros({3});
  EXPECT_NO_THROW(
      kernel::softmax_cross_entropy(losses, lse, logits, from_values<int32_t>({-1, 0, 4}), -1));
  EXPECT_THROW(
      kernel::softmax_cross_entropy(losses, lse, logits, from_values<int32_t>({-1, 0, 4}), -100),
      UsageError);
  EXPECT_THROW(kernel::softmax_cross_entropy(losses, lse, logits, full({3}, 0), -1), UsageError)
      << "float targets";
}

}  // namespace
}  // namespace lockstep::test
