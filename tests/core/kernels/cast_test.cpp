#include <cstring>

#include "core/kernels/elementwise.h"
#include "tests/support/kernel_test.h"

namespace lockstep::test {
namespace {

class Cast : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Cast);

template <class T>
std::vector<uint16_t> bits_of(const Tensor& x) {
  std::vector<uint16_t> bits;
  for (T v : values<T>(x)) bits.push_back(v.bits);
  return bits;
}

template <class T>
Tensor all_codes() {
  std::vector<T> codes(65536);
  for (int i = 0; i < 65536; ++i) codes[i].bits = static_cast<uint16_t>(i);
  return from_values(codes);
}

// IEEE 754 values of a code, worked out with ldexp.
double half_meaning(uint16_t code) {
  const int exponent = (code >> 10) & 31, mantissa = code & 1023;
  const double sign = code & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa ? std::nan("") : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24));
}

TEST_P(Cast, EveryHalfCodeMeansWhatIeeeSays) {
  const Tensor x = all_codes<half>(), y = Tensor::empty(x.shape()), back = empty_like(x);
  kernel::cast(y, x);
  const std::vector<float> v = values(y);
  for (int i = 0; i < 65536; ++i) {
    const double expected = half_meaning(static_cast<uint16_t>(i));
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(v[i])) << i;
    else
      ASSERT_EQ(v[i], expected) << i;
    ASSERT_EQ(std::signbit(v[i]), (i & 0x8000) != 0) << i;
  }
  kernel::cast(back, y);
  const std::vector<uint16_t> bits = bits_of<half>(back);
  for (int i = 0; i < 65536; ++i) ASSERT_EQ(bits[i], std::isnan(v[i]) ? (i | 0x200) : i);
}

TEST_P(Cast, EveryBfloat16CodeComesBack) {
  const Tensor x = all_codes<bfloat16>(), y = Tensor::empty(x.shape()), back = empty_like(x);
  kernel::cast(y, x);
  const std::vector<float> v = values(y);
  for (int i = 0; i < 65536; ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(v[i]), static_cast<uint32_t>(i) << 16);
  kernel::cast(back, y);
  const std::vector<uint16_t> bits = bits_of<bfloat16>(back);
  for (int i = 0; i < 65536; ++i) ASSERT_EQ(bits[i], std::isnan(v[i]) ? (i | 0x40) : i);
}

// Between any two neighbouring codes: a little below the middle, the middle, a little above.
template <class T>
void neighbours(int last_finite) {
  std::vector<float> x;
  std::vector<uint16_t> expected;
  for (int code = 0; code < last_finite; ++code) {
    T low, high;
    low.bits = static_cast<uint16_t>(code);
    high.bits = static_cast<uint16_t>(code + 1);
    const float middle = static_cast<float>((static_cast<double>(float(low)) + float(high)) / 2);
    for (int sign : {0, 0x8000})
      for (int side : {-1, 0, 1}) {
        const float v = side < 0   ? std::nextafter(middle, 0.0f)
                        : side > 0 ? std::nextafter(middle, INFINITY)
                                   : middle;
        x.push_back(sign ? -v : v);
        const int nearest = side < 0 ? code : side > 0 ? code + 1 : code + (code & 1);
        expected.push_back(static_cast<uint16_t>(nearest | sign));
      }
  }
  const Tensor from = from_values(x), to = Tensor::empty(from.shape(), dtype_of<T>);
  kernel::cast(to, from);
  const std::vector<uint16_t> bits = bits_of<T>(to);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(bits[i], expected[i]) << x[i];
    ASSERT_EQ(T(x[i]).bits, expected[i]) << "one at a time: " << x[i];
  }
}
TEST_P(Cast, HalfRoundsToNearestEvenBetweenAllNeighbours) { neighbours<half>(0x7bff); }
TEST_P(Cast, Bfloat16RoundsToNearestEvenBetweenAllNeighbours) { neighbours<bfloat16>(0x7f7f); }

TEST_P(Cast, OverflowGoesToInfinityAndNanStays) {
  const std::vector<float> x = {65504,     65519.996f, 65520,   1e30f, -65520, INFINITY,
                                -INFINITY, NAN,        3.4e38f, 60000, -60000};
  const Tensor from = from_values(x), h = Tensor::empty(from.shape(), DType::f16),
               b = Tensor::empty(from.shape(), DType::bf16);
  kernel::cast(h, from);
  kernel::cast(b, from);
  const std::vector<uint16_t> expected = {0x7bff, 0x7bff, 0x7c00, 0x7c00, 0xfc00, 0x7c00, 0xfc00};
  const std::vector<uint16_t> bits = bits_of<half>(h);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), bits.begin()));
  EXPECT_TRUE(std::isnan(values<half>(h)[7]));
  EXPECT_TRUE(std::isnan(values<bfloat16>(b)[7]));
  EXPECT_EQ(bits_of<bfloat16>(b)[8], 0x7f80)
      << "3.4e38 is nearer to 2^128 than to the largest bfloat16";
  EXPECT_TRUE(std::isfinite(float(values<half>(h)[9])) &&
              std::isfinite(float(values<half>(h)[10])));
}

TEST_P(Cast, EveryPairOfTypesAndOddSizes) {
  const DType types[] = {DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8};
  for (int64_t n : {0, 1, 15, 17, 1000}) {
    std::vector<float> numbers(n);
    for (int64_t i = 0; i < n; ++i) numbers[i] = static_cast<float>(i % 200);
    const Tensor x = from_values(numbers);
    for (DType from : types)
      for (DType to : types) {
        const Tensor a = Tensor::empty({n}, from), b = Tensor::empty({n}, to), back = empty_like(x);
        kernel::cast(a, x);
        kernel::cast(b, a);
        kernel::cast(back, b);
        EXPECT_EQ(values(back), numbers) << name_of(from) << " to " << name_of(to);
      }
  }
}

TEST_P(Cast, FloatToIntegerTruncatesToWhatFits) {
  const Tensor x = from_values<float>({1.9f, -1.9f, 0.5f, 2147483520.0f, 1e20f, -INFINITY, NAN}),
               y = Tensor::empty({7}, DType::i32);
  kernel::cast(y, x);
  EXPECT_EQ(values<int32_t>(y),
            (std::vector<int32_t>{1, -1, 0, 2147483520, INT32_MAX, INT32_MIN, 0}));
}

}  // namespace
}  // namespace lockstep::test
