#include "core/kernels/feedback.h"

#include <bit>

#include "tests/support/kernel_test.h"

namespace lockstep::test {
namespace {

class Feedback : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Feedback);

using Floats = std::vector<float>;

Floats some(int64_t n, uint32_t key, double sd = 1) { return values(random_tensor({n}, key, sd)); }

TEST_P(Feedback, AddsTheScaledGradientToTheResidual) {
  for (int64_t n : odd_sizes()) {
    const Floats x = some(n, 1, 1000), before = some(n, 2);
    Floats residual = before, expected = before;
    float most = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const float scaled = 0x1p-7f * x[i];
      expected[i] = scaled + before[i];
      most = std::max(most, std::abs(expected[i]));
    }
    EXPECT_EQ(kernel::add_feedback(residual, x, 0x1p-7f, residual), most) << n;
    EXPECT_EQ(residual, expected) << n;
  }
}

TEST_P(Feedback, MomentumGoesIntoTheVelocityFirst) {
  for (int64_t n : odd_sizes()) {
    const Floats x = some(n, 1), residual = some(n, 2);
    Floats velocity = some(n, 3), sum(x.size()), next = velocity, expected = residual;
    float most = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const float kept = 0.9f * velocity[i], added = 0.25f * x[i];
      next[i] = kept + added;
      expected[i] += next[i];
      most = std::max(most, std::abs(expected[i]));
    }
    EXPECT_EQ(
        kernel::add_feedback_with_momentum(sum, x, 0.25f, residual, {0.9f, velocity, velocity}),
        most);
    EXPECT_EQ(sum, expected) << n;
    EXPECT_EQ(velocity, next) << n;
  }
}

TEST_P(Feedback, OneInfinityOrNanAnywhereShows) {
  for (int64_t n : {1, 5, 16, 33, 70001})
    for (int64_t at : {int64_t{0}, n / 2, n - 1})
      for (float bad : {INFINITY, -INFINITY, NAN}) {
        Floats x = some(n, 4), sum(x.size());
        const Floats zeros(x.size());
        x[static_cast<size_t>(at)] = bad;
        EXPECT_FALSE(std::isfinite(kernel::largest_magnitude(x)));
        EXPECT_FALSE(std::isfinite(kernel::add_feedback(sum, x, 1, zeros)));
        Floats velocity = zeros;
        EXPECT_FALSE(std::isfinite(
            kernel::add_feedback_with_momentum(sum, x, 1, zeros, {0.5f, velocity, velocity})));
      }
  EXPECT_EQ(kernel::largest_magnitude({}), 0);
}

TEST_P(Feedback, SquaresAreAddedInAnOrderOfTheirOwn) {
  for (int64_t n : odd_sizes()) {
    const Floats x = some(n, 5);
    // Blocks of 65536, sixteen sums in each.
    double expected = 0, plain = 0;
    for (size_t begin = 0; begin < x.size(); begin += 65536) {
      const size_t end = std::min(x.size(), begin + 65536), whole = begin + (end - begin) / 16 * 16;
      double sums[16] = {}, block = 0;
      for (size_t i = begin; i < whole; ++i) sums[i % 16] += double{x[i]} * x[i];
      for (double sum : sums) block += sum;
      for (size_t i = whole; i < end; ++i) block += double{x[i]} * x[i];
      expected += block;
    }
    for (float v : x) plain += double{v} * v;
    EXPECT_EQ(kernel::squares_of(x), expected) << n;
    EXPECT_NEAR(kernel::squares_of(x), plain, 1e-10 * plain) << n;
  }
}

TEST(FeedbackShapes, AreChecked) {
  Floats three(3), two(2);
  EXPECT_THROW(kernel::add_feedback(three, two, 1, three), UsageError);
  EXPECT_THROW(kernel::add_feedback(three, three, 1, two), UsageError);
  EXPECT_THROW(kernel::add_feedback_with_momentum(three, three, 1, three, {0, two, three}),
               UsageError);
  EXPECT_THROW(kernel::add_feedback_with_momentum(three, three, 1, three, {0, three, two}),
               UsageError);
}

}  // namespace
}  // namespace lockstep::test
