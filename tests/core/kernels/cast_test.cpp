#include <cstring>

#include "core/kernels/elementwise.h"
#include "tests/support/formats.h"
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

template <class T>
const Format& format_of() {
  return std::is_same_v<T, half> ? half_format() : bfloat16_format();
}

template <class T>
void every_code_widens_and_comes_back() {
  const Format& format = format_of<T>();
  const int quiet = std::is_same_v<T, half> ? 0x200 : 0x40;
  const Tensor x = all_codes<T>(), y = Tensor::empty(x.shape()), back = empty_like(x);
  kernel::cast(y, x);
  const std::vector<float> v = values(y);
  for (int i = 0; i < 65536; ++i) {
    const double expected = format.value(i);
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(v[i])) << i;
    else
      ASSERT_EQ(v[i], expected) << i;
    ASSERT_EQ(std::signbit(v[i]), (i & 0x8000) != 0) << i;
    ASSERT_EQ(std::bit_cast<uint32_t>(v[i]),
              std::bit_cast<uint32_t>(static_cast<float>(values<T>(x.slice(i, i + 1))[0])));
  }
  kernel::cast(back, y);
  const std::vector<uint16_t> bits = bits_of<T>(back);
  for (int i = 0; i < 65536; ++i) ASSERT_EQ(bits[i], std::isnan(v[i]) ? (i | quiet) : i);
}
TEST_P(Cast, EveryHalfCodeMeansWhatIeeeSays) { every_code_widens_and_comes_back<half>(); }
TEST_P(Cast, EveryBfloat16CodeMeansWhatIsSaid) { every_code_widens_and_comes_back<bfloat16>(); }

// Against a search of all values for the nearest.
template <class T>
void rounds_to_nearest_even(const std::vector<float>& x) {
  const Format& format = format_of<T>();
  const Tensor from = from_values(x), to = Tensor::empty(from.shape(), dtype_of<T>);
  kernel::cast(to, from);
  const std::vector<uint16_t> bits = bits_of<T>(to);
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(format.value(bits[i]))) << i;
      ASSERT_EQ(std::signbit(x[i]), (bits[i] & 0x8000) != 0) << i;
      // The upper part of the payload, and the quiet bit.
      const uint32_t payload = std::bit_cast<uint32_t>(x[i]) & 0x7fffff;
      const int kept = std::is_same_v<T, half> ? payload >> 13 | 0x200 : payload >> 16 | 0x40;
      ASSERT_EQ(bits[i] & (std::is_same_v<T, half> ? 0x3ff : 0x7f), kept) << i;
    } else {
      ASSERT_EQ(bits[i], format.nearest(x[i])) << x[i];
    }
    ASSERT_EQ(T(x[i]).bits, bits[i]) << "one at a time: " << x[i];
  }
}
TEST_P(Cast, HalfRoundsToNearestEvenBetweenAllNeighbours) {
  rounds_to_nearest_even<half>(half_format().borders());
}
TEST_P(Cast, Bfloat16RoundsToNearestEvenBetweenAllNeighbours) {
  rounds_to_nearest_even<bfloat16>(bfloat16_format().borders());
}
TEST_P(Cast, AnyBitsAndAllKindsOfNan) {
  std::vector<float> x = {INFINITY, -INFINITY, 0.0f,    -0.0f,
                          3.4e38f,  1e-45f,    -1e-45f, 1.1754944e-38f};
  const Random random(5, RandomStream::tests);
  for (uint64_t i = 0; i < 100000; ++i) x.push_back(std::bit_cast<float>(random.word(i)));
  for (uint32_t i = 0; i < 23; ++i)
    for (uint32_t sign : {0u, 0x80000000u})
      x.push_back(std::bit_cast<float>(sign | 0x7f800000u | 1u << i));
  x.push_back(std::bit_cast<float>(0x7fffffffu));
  rounds_to_nearest_even<half>(x);
  rounds_to_nearest_even<bfloat16>(x);
}

// `count` elements from odd addresses to odd addresses; what lies around them stays.
template <class T>
void casts_in_place_of(int64_t count, int64_t from, int64_t to) {
  const Tensor x = Tensor::empty({from + count}), low = full({to + count + 3}, 7, dtype_of<T>),
               back = full({to + count + 3}, 7);
  for (int64_t i = 0; i < from + count; ++i)
    x.mutable_data<float>()[i] = static_cast<float>(i % 999) * 1.2345e-3f;
  const Tensor in = x.slice_as_root(from, {count}), out = low.slice_as_root(to, {count});
  kernel::cast(out, in);
  kernel::cast(back.slice_as_root(to, {count}), out);
  const float* given = in.data<float>();
  const T* got = low.data<T>();
  const float* widened = back.data<float>();
  for (int64_t i = 0; i < low.numel(); ++i) {
    const bool inside = i >= to && i < to + count;
    const T expected = T(inside ? given[i - to] : 7.0f);
    ASSERT_EQ(got[i].bits, expected.bits) << count << " at " << i;
    ASSERT_EQ(widened[i], static_cast<float>(expected)) << count << " at " << i;
  }
}
TEST_P(Cast, OddOffsetsAndLengths) {
  for (int64_t count = 0; count < 70; ++count)
    for (int64_t from : {0, 1, 3})
      for (int64_t to : {0, 1, 2, 15, 17}) {
        casts_in_place_of<half>(count, from, to);
        casts_in_place_of<bfloat16>(count, from, to);
      }
}
TEST_P(Cast, LargeOnesThatGoPastTheCaches) {
  ThreadBudget one(1);
  for (int64_t to : {0, 5}) {
    casts_in_place_of<half>((8 << 20) + 4099, 1, to);
    casts_in_place_of<bfloat16>((8 << 20) + 4099, 1, to);
  }
}

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

TEST_P(Cast, BetweenTheNarrowTypesGoesByWayOfFloat) {
  const Tensor h = all_codes<half>(), b = all_codes<bfloat16>(), from_b = empty_like(h),
               from_h = empty_like(b);
  kernel::cast(from_h, h);
  kernel::cast(from_b, b);
  const std::vector<uint16_t> to_bfloat16 = bits_of<bfloat16>(from_h),
                              to_half = bits_of<half>(from_b);
  for (int i = 0; i < 65536; ++i) {
    ASSERT_EQ(to_bfloat16[i], bfloat16_bits(half_value(static_cast<uint16_t>(i)))) << i;
    ASSERT_EQ(to_half[i], half_bits(bfloat16_value(static_cast<uint16_t>(i)))) << i;
  }
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
