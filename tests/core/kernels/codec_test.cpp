// Eight-bit floats against their definition.
#include "core/kernels/codec.h"

#include "core/kernels/elementwise.h"
#include "tests/support/formats.h"
#include "tests/support/kernel_test.h"

namespace lockstep::test {
namespace {

using kernel::Fp8;
using kernel::Fp8Encoding;
using kernel::Fp8Overflow;

class Codec : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Codec);
class CodecKnownFaults : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(CodecKnownFaults);

constexpr Fp8 kFormats[] = {Fp8::e4m3, Fp8::e5m2};
const Format& format_of(Fp8 f) { return f == Fp8::e4m3 ? e4m3_format() : e5m2_format(); }

std::vector<uint8_t> encode(const Tensor& x, const Fp8Encoding& how) {
  const Tensor codes = Tensor::empty(x.shape(), DType::u8);
  kernel::encode_fp8(codes, x, how);
  return values<uint8_t>(codes);
}
std::vector<uint8_t> encode(const std::vector<float>& x, const Fp8Encoding& how = {}) {
  return encode(from_values(x), how);
}
std::vector<float> decode(const std::vector<uint8_t>& codes, Fp8 format, float factor = 1) {
  const Tensor out = full({static_cast<int64_t>(codes.size())}, 7);
  kernel::decode_fp8(out, from_values(codes), format, factor);
  return values(out);
}
// There and back.
std::vector<float> through(const std::vector<float>& x, const Fp8Encoding& how = {}) {
  return decode(encode(x, how), how.format);
}

// What the header promises for any x.
int expected_code(float x, Fp8 f, Fp8Overflow overflow) {
  const Format& format = format_of(f);
  const int sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return sign | 0x7f;
  const int code = format.nearest(x);
  if ((code & 0x7f) <= format.last_finite()) return code;
  if (overflow == Fp8Overflow::saturate) return sign | format.last_finite();
  return sign | (f == Fp8::e4m3 ? 0x7f : 0x7c);
}

TEST_P(CodecKnownFaults, O13_E4m3) {
  const std::vector<float> x = {448, 464, 465, 1000, -1000, 0x1p-9f, 0x1p-10f, 1.5f * 0x1p-10f};
  EXPECT_EQ(through(x), (std::vector<float>{448, 448, 448, 448, -448, 0x1p-9f, 0, 0x1p-9f}));
  const std::vector<float> special = through(x, {.overflow = Fp8Overflow::special});
  EXPECT_EQ(special[0], 448);
  EXPECT_EQ(special[1], 448) << "a tie to even";
  for (int i : {2, 3, 4}) EXPECT_TRUE(std::isnan(special[i])) << x[i];
  for (Fp8Overflow overflow : {Fp8Overflow::saturate, Fp8Overflow::special}) {
    EXPECT_TRUE(std::isnan(through({NAN}, {.overflow = overflow})[0]));
    EXPECT_TRUE(std::isnan(through({-NAN}, {.overflow = overflow})[0]));
  }
  EXPECT_EQ(through({INFINITY, -INFINITY}), (std::vector<float>{448, -448}));
  EXPECT_TRUE(std::isnan(through({INFINITY}, {.overflow = Fp8Overflow::special})[0]));
}

TEST_P(CodecKnownFaults, O13_E5m2) {
  const std::vector<float> x = {57344, 61439, 61440, 1e9f, INFINITY, -INFINITY};
  EXPECT_EQ(through(x, {.format = Fp8::e5m2}),
            (std::vector<float>{57344, 57344, 57344, 57344, 57344, -57344}));
  EXPECT_EQ(through(x, {.format = Fp8::e5m2, .overflow = Fp8Overflow::special}),
            (std::vector<float>{57344, 57344, INFINITY, INFINITY, INFINITY, -INFINITY}));
  EXPECT_TRUE(std::isnan(through({NAN}, {.format = Fp8::e5m2})[0]));
}

TEST_P(CodecKnownFaults, O13_ScaledByTheLargest) {
  const std::vector<uint8_t> codes = encode({896, -896, 2}, {.scale = 0.5f});
  EXPECT_EQ(decode(codes, Fp8::e4m3), (std::vector<float>{448, -448, 1}));
  EXPECT_EQ(decode(codes, Fp8::e4m3, 2), (std::vector<float>{896, -896, 2}));
}

TEST_P(CodecKnownFaults, O13_All256CodesComeBack) {
  std::vector<uint8_t> codes(256);
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(i);
  for (Fp8 f : kFormats) {
    const std::vector<float> v = decode(codes, f);
    for (int i = 0; i < 256; ++i) {
      const double expected = format_of(f).value(i);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(v[i])) << i;
      } else {
        ASSERT_EQ(v[i], expected) << i;
        ASSERT_EQ(std::signbit(v[i]), i >= 128) << i;
      }
    }
    const std::vector<uint8_t> back = encode(v, {.format = f, .overflow = Fp8Overflow::special});
    for (int i = 0; i < 256; ++i) {
      if (std::isnan(v[i]))
        ASSERT_EQ(back[i] & 0x7f, 0x7f) << i;
      else
        ASSERT_EQ(back[i], i);
    }
  }
}

TEST_P(Codec, RoundsToNearestEvenBetweenAllNeighbours) {
  for (Fp8 f : kFormats) {
    std::vector<float> x = format_of(f).borders();
    const Random random(5, RandomStream::tests);
    for (uint64_t i = 0; i < 20000; ++i) x.push_back(std::bit_cast<float>(random.word(i)));
    x.insert(x.end(), {0.0f, -0.0f, 1e-45f, -1e-45f, 1e-38f, INFINITY, -INFINITY, NAN});
    for (Fp8Overflow overflow : {Fp8Overflow::saturate, Fp8Overflow::special}) {
      const std::vector<uint8_t> codes = encode(x, {.format = f, .overflow = overflow});
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(codes[i], expected_code(x[i], f, overflow)) << x[i];
    }
  }
}

TEST_P(Codec, EveryHalfAndBfloat16) {
  for (DType low : {DType::f16, DType::bf16}) {
    const Tensor x = Tensor::empty({65536}, low), wide = Tensor::empty({65536});
    auto* bits = static_cast<uint16_t*>(x.mutable_bytes_data());
    for (int i = 0; i < 65536; ++i) bits[i] = static_cast<uint16_t>(i);
    kernel::cast(wide, x);
    for (Fp8 f : kFormats) {
      const std::vector<uint8_t> codes = encode(x, {.format = f});
      EXPECT_EQ(codes, encode(wide, {.format = f}));
      const Tensor out = empty_like(x);
      kernel::decode_fp8(out, from_values(codes), f, 1);
      const Tensor decoded = empty_like(wide);
      kernel::cast(decoded, out);
      const std::vector<float> got = values(decoded), expected = decode(codes, f);
      for (int i = 0; i < 65536; ++i)
        ASSERT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) << i;
    }
  }
}

TEST_P(Codec, OddSizesTouchNothingElse) {
  for (int64_t n : odd_sizes())
    for (Fp8 f : kFormats) {
      const Tensor x = random_tensor({n}, 1, 1, Placed::unaligned);
      const Tensor codes = full({n + 5}, 99, DType::u8), out = full({n + 5}, 99);
      const Tensor inner = codes.slice_as_root(3, {n});
      kernel::encode_fp8(inner, x, {.format = f});
      kernel::decode_fp8(out.slice_as_root(3, {n}), inner, f, 0.5f);
      const std::vector<uint8_t> c = values<uint8_t>(codes);
      const std::vector<float> v = values(x), o = values(out);
      for (int64_t i = 0; i < n + 5; ++i) {
        const bool inside = i >= 3 && i < n + 3;
        const int code = inside ? expected_code(v[i - 3], f, Fp8Overflow::saturate) : 99;
        ASSERT_EQ(c[i], code) << i << " of " << n;
        ASSERT_EQ(o[i], inside ? format_of(f).value(code) * 0.5 : 99) << i << " of " << n;
      }
    }
}

TEST_P(Codec, StochasticRoundingIsUnbiasedBetweenTheTwoNeighbours) {
  const int64_t trials = 10000;
  for (Fp8 f : kFormats) {
    const Format& format = format_of(f);
    const double least = format.value(1);  // the least subnormal
    for (double exact : {1.03, -2.9, 100.1, 440.0, 3.3 * least, 0.01 * least, -0.7 * least,
                         format.value(9) * 1.01, 1e-30}) {
      const float x = static_cast<float>(exact);
      const Random random(11, RandomStream::stochastic_rounding, 3);
      const Tensor codes = Tensor::empty({trials}, DType::u8), out = Tensor::empty({trials});
      kernel::encode_fp8(codes, full({trials}, x),
                         {.format = f, .stochastic = &random, .position = 1});
      kernel::decode_fp8(out, codes, f, 1);
      // The neighbours, by search.
      int code = 0;
      while (format.value(code + 1) <= std::abs(x)) ++code;
      const double low = format.value(code), high = format.value(code + 1);
      double sum = 0;
      for (float v : values(out)) {
        ASSERT_TRUE(std::abs(v) == low || std::abs(v) == high) << v << " for " << x;
        sum += v;
      }
      const double p = (std::abs(x) - low) / (high - low);
      const double sigma = (high - low) * std::sqrt(p * (1 - p) / static_cast<double>(trials));
      EXPECT_LE(std::abs(sum / static_cast<double>(trials) - x), 5 * sigma + 1e-9 * least)
          << x << ", sigma " << sigma;
    }
  }
}

TEST_P(Codec, StochasticRoundingKeepsExactValues) {
  const Random random(11, RandomStream::stochastic_rounding);
  for (Fp8 f : kFormats) {
    std::vector<uint8_t> codes;
    for (int i = 0; i < 256; ++i)
      if (std::isfinite(format_of(f).value(i))) codes.push_back(static_cast<uint8_t>(i));
    const std::vector<float> v = decode(codes, f);
    for (uint64_t position : {0, 1, 1000})
      EXPECT_EQ(encode(v, {.format = f, .stochastic = &random, .position = position}), codes);
    EXPECT_EQ(through({1e9f, -INFINITY}, {.format = f, .stochastic = &random}),
              (std::vector<float>{static_cast<float>(format_of(f).largest()),
                                  static_cast<float>(-format_of(f).largest())}));
    EXPECT_TRUE(std::isnan(through({NAN}, {.format = f, .stochastic = &random})[0]));
  }
}

// The rule itself, one at a time, with the words as Random gives them: so neither the instruction
// set nor the number of threads nor where a call begins matters.
TEST_P(Codec, StochasticRoundingIsAFunctionOfSeedAndPosition) {
  const int64_t n = 70001;
  const Random random(12, RandomStream::stochastic_rounding, 5);
  const Tensor x = random_tensor({n}, 4, 0.02);
  for (Fp8 f : kFormats) {
    const Format& format = format_of(f);
    const std::vector<uint8_t> codes =
        encode(x, {.format = f, .stochastic = &random, .position = 6});
    const std::vector<float> v = values(x);
    for (int64_t i = 0; i < n; ++i) {
      const double magnitude = std::abs(v[i]);
      int code = format.nearest(magnitude);
      if (format.value(code) > magnitude) --code;
      const double step = format.value(code + 1) - format.value(code);
      const double distance = (magnitude - format.value(code)) / step;
      // Of normal numbers the upper bits of the word, as many as are cut off, carry; of subnormal
      // ones 31 bits are compared.
      const uint32_t word = random.word(6 + static_cast<uint64_t>(i));
      const int bits = f == Fp8::e4m3 ? 20 : 21;
      const bool normal = code >= (f == Fp8::e4m3 ? 8 : 4);
      const bool up = normal ? distance * std::exp2(bits) + (word >> (32 - bits)) >= std::exp2(bits)
                             : (word >> 1) < std::floor(distance * 0x1p31);
      ASSERT_EQ(codes[i] & 0x7f, code + up) << v[i];
    }
    // A part of it, from where that begins.
    const std::vector<uint8_t> rest =
        encode(x.slice(1001, n), {.format = f, .stochastic = &random, .position = 6 + 1001});
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), codes.begin() + 1001));
  }
}

TEST(CodecShapes, AreChecked) {
  EXPECT_EQ(error_of<UsageError>([] { kernel::encode_fp8(zeros({3}, DType::u8), zeros({4}), {}); }),
            "[kernel.encode_fp8] codes; expected 4 elements, got 3");
  EXPECT_THROW(kernel::encode_fp8(zeros({3}), zeros({3}), {}), UsageError);
  EXPECT_THROW(kernel::decode_fp8(zeros({3}), zeros({3}), Fp8::e4m3, 1), UsageError);
  EXPECT_THROW(kernel::decode_fp8(zeros({3}, DType::i32), zeros({3}, DType::u8), Fp8::e4m3, 1),
               UsageError);
}

}  // namespace
}  // namespace lockstep::test
