#include "core/kernels/magnitudes.h"

#include "core/kernels/elementwise.h"
#include "tests/support/kernel_test.h"

namespace lockstep::test {
namespace {

class Magnitudes : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Magnitudes);

// By frexp, one at a time.
std::vector<int64_t> naive(const Tensor& x) {
  std::vector<int64_t> counts(kernel::kMagnitudes, 0);
  const Tensor wide = Tensor::empty(x.shape());
  kernel::cast(wide, x);
  for (float v : values(wide)) {
    int exponent = 0;
    std::frexp(v, &exponent);  // |v| in [2^(exponent - 1), 2^exponent)
    const int64_t at = std::isnan(v)   ? kernel::kNans
                       : std::isinf(v) ? kernel::kInfinities
                       : v == 0        ? kernel::kZeros
                                       : std::max(exponent - 1 + 127, 0);
    ++counts[static_cast<size_t>(at)];
  }
  return counts;
}

std::vector<int64_t> count(const Tensor& x) {
  const Tensor counts = zeros({kernel::kMagnitudes}, DType::i64);
  kernel::count_magnitudes(counts, x);
  return values<int64_t>(counts);
}

Tensor any_bits(int64_t n, DType dtype) {
  const Tensor x = Tensor::empty({n}, dtype);
  auto* bits = static_cast<uint16_t*>(x.mutable_bytes_data());
  const Random random(9, RandomStream::tests);
  for (int64_t i = 0; i < x.bytes() / 2; ++i)
    bits[i] = static_cast<uint16_t>(random.word(static_cast<uint64_t>(i)));
  return x;
}

TEST_P(Magnitudes, OfAnyBitsInEveryDType) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (int64_t n : odd_sizes()) {
      const Tensor x = any_bits(n, dtype);
      EXPECT_EQ(count(x), naive(x)) << name_of(dtype) << " " << n;
    }
}

TEST_P(Magnitudes, OfGradientsAndConstants) {
  const Tensor x = random_tensor({300001}, 1, 1e-5, Placed::unaligned);
  EXPECT_EQ(count(x), naive(x));
  for (float v : {0.0f, -0.0f, 1.0f, 1e-45f, 0x1p-126f, INFINITY, -INFINITY, NAN, 3.4e38f}) {
    kernel::fill(x, v);
    EXPECT_EQ(count(x), naive(x)) << v;
  }
}

TEST_P(Magnitudes, AreAddedToTheCounts) {
  const Tensor counts = full({kernel::kMagnitudes}, 5, DType::i64),
               x = from_values<float>({1, 1.5f, 2, 0, 0, 0, NAN, INFINITY});
  kernel::count_magnitudes(counts, x);
  const std::vector<int64_t> v = values<int64_t>(counts);
  EXPECT_EQ(v[127], 7);
  EXPECT_EQ(v[128], 6);
  EXPECT_EQ(v[0], 5);
  EXPECT_EQ(v[kernel::kInfinities], 6);
  EXPECT_EQ(v[kernel::kNans], 6);
  EXPECT_EQ(v[kernel::kZeros], 8);
}

// 2^-24, the least half, is not subnormal as a float: its exact value counts.
TEST_P(Magnitudes, OfSubnormalHalvesAreTheirExactOnes) {
  const Tensor x = full({3}, 0x1p-24, DType::f16);
  EXPECT_EQ(count(x)[127 - 24], 3);
}

TEST(MagnitudesShapes, AreChecked) {
  EXPECT_THROW(kernel::count_magnitudes(zeros({257}, DType::i64), zeros({3})), UsageError);
  EXPECT_THROW(kernel::count_magnitudes(zeros({258}), zeros({3})), UsageError);
  EXPECT_THROW(kernel::count_magnitudes(zeros({258}, DType::i64), zeros({3}, DType::i32)),
               UsageError);
}

}  // namespace
}  // namespace lockstep::test
