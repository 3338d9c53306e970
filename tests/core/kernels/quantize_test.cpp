// Codes of few bits against plain twins, one element at a time.
#include "core/kernels/quantize.h"

#include <bit>
#include <cstring>
#include <limits>

#include "tests/support/formats.h"
#include "tests/support/kernel_test.h"

namespace lockstep::test {
namespace {

using kernel::BlockCode;
using kernel::Draws;
using kernel::FedBack;
using kernel::Shorten;
using kernel::StepCode;
using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

class Quantize : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Quantize);

constexpr float kMost = std::numeric_limits<float>::max();
constexpr BlockCode::Grid kGrids[] = {BlockCode::Grid::absmax, BlockCode::Grid::l2,
                                      BlockCode::Grid::minmax};

Floats normals(int64_t n, uint32_t key, double sd = 1) {
  return values(random_tensor({n}, key, sd));
}

// x, with and without a residual, and room for the next one.
struct Input {
  Input(Floats v, Floats r, float s) : values(std::move(v)), residual(std::move(r)), scale(s) {
    next.assign(values.size() + 1, 99);
  }
  FedBack in() {
    return {.values = values.data(),
            .numel = static_cast<int64_t>(values.size()),
            .residual = residual.empty() ? nullptr : residual.data(),
            .next = next.data(),
            .scale = scale};
  }
  Floats x() const {
    Floats sum = values;
    for (size_t i = 0; i < residual.size(); ++i) sum[i] += scale * residual[i];
    return sum;
  }
  Floats values, residual, next;
  float scale;
};
Input input_of(int64_t n, uint32_t key) {
  return key % 2 == 0 ? Input(normals(n, key), {}, 1)
                      : Input(normals(n, key), normals(n, key + 100, 0.05), 8);
}

// Bits [at, at + bits) of a row of bytes.
int bits_at(const std::byte* bytes, int64_t at, int bits) {
  int code = 0;
  for (int b = 0; b < bits; ++b)
    code |= (static_cast<int>(bytes[(at + b) / 8]) >> ((at + b) % 8) & 1) << b;
  return code;
}
float float_of(const std::byte* bytes, int64_t i) {
  float v;
  std::memcpy(&v, bytes + 4 * i, 4);
  return v;
}
int rounded(float y, const Draws* draws, int64_t i) {
  if (draws == nullptr) return static_cast<int>(std::nearbyint(y));
  const auto at = static_cast<uint64_t>(i);
  const uint32_t word = Random(draws->seed, RandomStream::stochastic_rounding, draws->key)
                            .block(draws->position + at / 8)[at % 8 / 2];
  const uint32_t half = at % 2 == 0 ? word & 0xffff : word >> 16;
  return static_cast<int>(std::floor(y + (static_cast<float>(half) + 0.5f) * 0x1p-16f));
}

// What a block's codes are, and what they decode to.
struct Twin {
  Twin(const float* x, int64_t n, const BlockCode& code, bool stochastic) : bits(code.bits) {
    range = code.grid == BlockCode::Grid::minmax;
    levels = bits == 1 ? 1 : (1 << (bits - 1)) - 1;
    top = range || bits == 1 ? (1 << bits) - 1 : 2 * levels;
    least = *std::min_element(x, x + n);
    largest = *std::max_element(x, x + n);
    float most = std::max(std::abs(least), std::abs(largest));
    if (code.grid == BlockCode::Grid::l2) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * x[i];
      most = static_cast<float>(std::sqrt(sum));  // within 2^-17, and then rounded to 17 bits
    }
    step = kernel::shorten(most / static_cast<float>(levels), 17,
                           stochastic ? Shorten::up : Shorten::nearest);
  }
  int code(float x, const Draws* draws, int64_t i) const {
    if (range) {
      const float half = 0.5f * largest - 0.5f * least;
      const float inverse = half == 0 ? 0 : static_cast<float>(top) / half;
      return std::clamp(rounded((0.5f * x - 0.5f * least) * inverse, draws, i), 0, top);
    }
    const float inverse = step == 0 ? 0 : 1 / step;
    if (bits == 1) return std::clamp(rounded((0.5f * x + 0.5f * step) * inverse, draws, i), 0, top);
    return std::clamp(rounded(x * inverse, draws, i) + levels, 0, top);
  }
  float value(int k) const {
    if (range) {
      const float t = static_cast<float>(k) * (1 / static_cast<float>(top));
      return least * (1 - t) + largest * t;
    }
    if (bits == 1) return (static_cast<float>(k) - 0.5f) * (2 * step);
    return (static_cast<float>(k) - static_cast<float>(levels)) * step;
  }
  int bits, levels, top;
  bool range;
  float least, largest, step;
};

TEST_P(Quantize, BlocksAreThoseOfTheirTwin) {
  const Draws draws{7, 3, 11};
  for (BlockCode::Grid grid : kGrids)
    for (int bits = 1; bits <= 8; ++bits)
      for (int64_t n : {0, 1, 2, 5, 7, 8, 9, 16, 17, 63, 64, 65, 200, 1023, 20001}) {
        const bool stochastic = (n + bits) % 2 == 0;
        const BlockCode code{.block = n > 1000 ? 256 : 64, .bits = bits, .grid = grid};
        const int64_t scale_bytes = code.scale_bytes(n), code_bytes = kernel::packed_bytes(n, bits);
        Input input = input_of(n, static_cast<uint32_t>(bits + n));
        Bytes bytes(static_cast<size_t>(scale_bytes + code_bytes) + 4, std::byte{0xa5});
        std::byte* scales = bytes.data() + 1;  // at an odd address
        std::byte* codes = scales + scale_bytes;
        ASSERT_TRUE(
            kernel::encode_blocks(scales, codes, input.in(), code, stochastic ? &draws : nullptr));
        Floats out(static_cast<size_t>(n) + 1, 0.25f);
        ASSERT_TRUE(kernel::add_blocks(out.data(), n, scales, codes, code));
        EXPECT_EQ(bytes.front(), std::byte{0xa5});
        EXPECT_EQ(codes[code_bytes], std::byte{0xa5});
        EXPECT_EQ(out[n], 0.25f);
        EXPECT_EQ(input.next[n], 99);
        const Floats x = input.x();
        for (int64_t at = 0; at < n; at += code.block) {
          const int64_t size = std::min(code.block, n - at), block = at / code.block;
          Twin twin(x.data() + at, size, code, stochastic);
          if (grid == BlockCode::Grid::l2) {
            const float step = float_of(scales, block);
            ASSERT_NEAR(step / twin.step, 1, 0x1p-15) << "block " << block;
            twin.step = step;
          } else if (!twin.range) {
            ASSERT_EQ(float_of(scales, block), twin.step);
          } else {
            ASSERT_EQ(float_of(scales, 2 * block), twin.least);
            ASSERT_EQ(float_of(scales, 2 * block + 1), twin.largest);
          }
          for (int64_t i = at; i < at + size; ++i) {
            const int k = bits_at(codes, i * bits, bits);
            ASSERT_EQ(k, twin.code(x[i], stochastic ? &draws : nullptr, i))
                << "element " << i << " of " << n << ", " << bits << " bits, x " << x[i];
            ASSERT_EQ(out[i], 0.25f + twin.value(k));
            ASSERT_EQ(input.next[i], (x[i] - twin.value(k)) / input.scale);
          }
        }
      }
}

TEST_P(Quantize, BlocksHaveTheSameBitsOnEverySet) {
  const int64_t n = 70001;
  const Draws draws{7, 3, 11};
  for (BlockCode::Grid grid : kGrids) {
    const BlockCode code{.block = 512, .bits = 4, .grid = grid};
    const auto encoded = [&] {
      Input input = input_of(n, 1);
      Bytes bytes(static_cast<size_t>(code.scale_bytes(n) + kernel::packed_bytes(n, 4)));
      kernel::encode_blocks(bytes.data(), bytes.data() + code.scale_bytes(n), input.in(), code,
                            &draws);
      return bytes;
    };
    const Bytes here = encoded();
    const cpu::Isa set = cpu::isa();
    cpu::use_isa(cpu::Isa::baseline);
    const Bytes plain = encoded();
    cpu::use_isa(set);
    EXPECT_EQ(here, plain);
  }
}

// Steps have so few bits that nothing is lost twice: what is sent and what is kept is x, exactly.
TEST_P(Quantize, WhatIsSentAndWhatIsKeptIsExactlyWhatWasThere) {
  for (int bits = 2; bits <= 8; ++bits) {
    const int64_t n = 5000;
    Input input(normals(n, 5), normals(n, 6, 0.1), 4);
    const BlockCode code{.block = 256, .bits = bits};
    Bytes scales(static_cast<size_t>(code.scale_bytes(n))),
        codes(static_cast<size_t>(kernel::packed_bytes(n, bits)));
    ASSERT_TRUE(kernel::encode_blocks(scales.data(), codes.data(), input.in(), code, nullptr));
    Floats out(n);
    kernel::add_blocks(out.data(), n, scales.data(), codes.data(), code);
    const Floats x = input.x();
    for (int64_t i = 0; i < n; ++i)
      ASSERT_EQ(double{out[i]} + double{input.scale} * input.next[i], double{x[i]}) << i;
  }
}

TEST_P(Quantize, DecodedNumbersAreEncodedAsTheyWere) {
  for (BlockCode::Grid grid : {BlockCode::Grid::absmax, BlockCode::Grid::minmax})
    for (int bits = grid == BlockCode::Grid::absmax ? 2 : 1; bits <= 8; ++bits) {
      const int64_t n = 3001;
      const BlockCode code{.block = 128, .bits = bits, .grid = grid};
      const auto encoded = [&](const Floats& x) {
        Bytes bytes(static_cast<size_t>(code.scale_bytes(n) + kernel::packed_bytes(n, bits)));
        EXPECT_TRUE(kernel::encode_blocks(bytes.data(), bytes.data() + code.scale_bytes(n),
                                          {.values = x.data(), .numel = n}, code, nullptr));
        return bytes;
      };
      const Bytes first = encoded(normals(n, 8));
      Floats out(n);
      kernel::add_blocks(out.data(), n, first.data(), first.data() + code.scale_bytes(n), code);
      EXPECT_EQ(encoded(out), first) << bits << " bits";
    }
}

TEST_P(Quantize, StochasticRoundingIsUnbiased) {
  const int64_t trials = 20000;
  const Floats x = {1, -0.37f, 0.003f, -1e-3f, 0.71f, 0, 0.5f, -0.999f};
  for (BlockCode::Grid grid : kGrids)
    for (int bits : {1, 2, 4, 7, 8}) {
      // A block for each trial.
      Floats all;
      for (int64_t t = 0; t < trials; ++t) all.insert(all.end(), x.begin(), x.end());
      const int64_t n = static_cast<int64_t>(all.size());
      const BlockCode code{.block = 8, .bits = bits, .grid = grid};
      Bytes scales(static_cast<size_t>(code.scale_bytes(n))),
          codes(static_cast<size_t>(kernel::packed_bytes(n, bits)));
      const Draws draws{static_cast<uint64_t>(bits), 1, 3};
      ASSERT_TRUE(kernel::encode_blocks(scales.data(), codes.data(),
                                        {.values = all.data(), .numel = n}, code, &draws));
      Floats out(static_cast<size_t>(n));
      ASSERT_TRUE(kernel::add_blocks(out.data(), n, scales.data(), codes.data(), code));
      for (size_t e = 0; e < x.size(); ++e) {
        double sum = 0, squares = 0;
        for (int64_t t = 0; t < trials; ++t) {
          const double v = out[static_cast<size_t>(t) * x.size() + e];
          sum += v;
          squares += v * v;
        }
        // Of a code that is chosen once in thousands (steps are rounded to 17 bits) the sample may
        // hold none.
        const double mean = sum / trials, step = 2.0 / (1 << (bits - 1));
        const double variance = std::max(squares / trials - mean * mean, 1e-4 * step * step);
        EXPECT_LE(std::abs(mean - x[e]), 5 * std::sqrt(variance / trials)) << x[e] << ", " << bits;
        if (x[e] == 0 && bits > 1 && grid != BlockCode::Grid::minmax) {
          EXPECT_EQ(squares, 0) << "zero stays zero";
        }
      }
    }
}

TEST_P(Quantize, EveryFiniteBlockHasACode) {
  const float least = std::numeric_limits<float>::denorm_min();
  const std::vector<Floats> cases = {{0, 0, 0, -0.0f},          {3, 3, 3},       {least, -least, 0},
                                     {1e-39f, 1e-40f, -1e-41f}, {kMost, -kMost}, {kMost, 1, least},
                                     {-kMost, -kMost},          {1e-20f, 1e20f}};
  const Draws draws{1, 1, 0};
  for (const Floats& x : cases)
    for (BlockCode::Grid grid : kGrids)
      for (int bits = 1; bits <= 8; ++bits)
        for (const Draws* with : {static_cast<const Draws*>(nullptr), &draws}) {
          Input input(x, {}, 1);
          const int64_t n = static_cast<int64_t>(x.size());
          const BlockCode code{.block = 8, .bits = bits, .grid = grid};
          Bytes scales(8), codes(8);
          ASSERT_TRUE(kernel::encode_blocks(scales.data(), codes.data(), input.in(), code, with));
          Floats out(x.size());
          ASSERT_TRUE(kernel::add_blocks(out.data(), n, scales.data(), codes.data(), code));
          const float largest = std::max(std::abs(*std::min_element(x.begin(), x.end())),
                                         std::abs(*std::max_element(x.begin(), x.end())));
          for (size_t i = 0; i < x.size(); ++i) {
            ASSERT_TRUE(std::isfinite(out[i])) << x[i] << ", " << bits << " bits";
            if (grid == BlockCode::Grid::l2 || bits == 1) continue;
            // Within a step (and what is flat within 2^-116).
            const double steps = grid == BlockCode::Grid::minmax
                                     ? 2.0 * largest / ((1 << bits) - 1)
                                     : 1.0 * largest / ((1 << (bits - 1)) - 1);
            ASSERT_LE(std::abs(double{out[i]} - x[i]), 1.00002 * steps + 0x1p-116)
                << x[i] << ", " << bits << " bits";
          }
        }
}

TEST_P(Quantize, WhatIsNotFiniteIsSaidAndSendsZeros) {
  for (float bad : {INFINITY, -INFINITY, NAN})
    for (int64_t place : {0, 40, 300, 1999}) {
      Floats x = normals(2000, 2);
      x[place] = bad;
      const FedBack in{.values = x.data(), .numel = 2000};
      Floats out(2000);
      for (BlockCode::Grid grid : kGrids) {
        const BlockCode code{.block = 64, .bits = 3, .grid = grid};
        Bytes scales(static_cast<size_t>(code.scale_bytes(2000))), codes(750);
        EXPECT_FALSE(kernel::encode_blocks(scales.data(), codes.data(), in, code, nullptr));
        EXPECT_TRUE(kernel::add_blocks(out.data(), 2000, scales.data(), codes.data(), code));
      }
      Bytes codes(4000);
      const StepCode steps{.step = 0.5f, .inverse = 2};
      EXPECT_FALSE(kernel::encode_steps(codes.data(), in, steps, nullptr));
      EXPECT_TRUE(kernel::add_steps(out.data(), 2000, codes.data(), steps));
      EXPECT_FALSE(kernel::encode_narrow(codes.data(), DType::f16, in, 1).finite);
      kernel::add_narrow(out.data(), 2000, codes.data(), DType::f16, 1);
      std::byte powers[2000 / 8];
      EXPECT_FALSE(kernel::encode_eighths(powers, codes.data(), in, {.block = 8}).finite);
      EXPECT_TRUE(kernel::add_eighths(out.data(), 2000, powers, codes.data(), {.block = 8}));
      EXPECT_EQ(out, Floats(2000));
      EXPECT_FALSE(kernel::encode_signs(codes.data(), in, 1));
      EXPECT_FALSE(std::isfinite(kernel::largest_magnitude(in)));
      EXPECT_FALSE(std::isfinite(kernel::sum_magnitudes(in).largest));
    }
  // A sum that overflows.
  Input input({kMost, 1}, {kMost, 1}, 2);
  Bytes codes(2);
  EXPECT_FALSE(kernel::encode_signs(codes.data(), input.in(), 1));
}

TEST_P(Quantize, BlocksThatNobodyWritesAreRefused) {
  const BlockCode code{.block = 8, .bits = 4};
  const Floats x = {1, 2, 3, 4, 5};
  Bytes scales(4), codes(3);
  const auto add = [&] {
    Floats out(6, 9);
    const bool good = kernel::add_blocks(out.data(), 5, scales.data(), codes.data(), code);
    EXPECT_EQ(out[5], 9);
    return good;
  };
  const auto encode = [&] {
    ASSERT_TRUE(kernel::encode_blocks(scales.data(), codes.data(), {.values = x.data(), .numel = 5},
                                      code, nullptr));
  };
  encode();
  EXPECT_TRUE(add());
  for (float step : {NAN, INFINITY, -1.0f, kMost}) {
    std::memcpy(scales.data(), &step, 4);
    EXPECT_FALSE(add()) << step;
  }
  encode();
  codes[1] |= std::byte{0xf0};  // 8 times the step
  EXPECT_FALSE(add());
  encode();
  codes[2] |= std::byte{0x10};  // after the last
  EXPECT_FALSE(add());
  const BlockCode range{.block = 8, .bits = 8, .grid = BlockCode::Grid::minmax};
  for (auto [least, largest] : {std::pair{2.0f, 1.0f}, {NAN, 1.0f}, {0.0f, INFINITY}}) {
    Bytes ends(8), five(5);
    std::memcpy(ends.data(), &least, 4);
    std::memcpy(ends.data() + 4, &largest, 4);
    Floats out(5);
    EXPECT_FALSE(kernel::add_blocks(out.data(), 5, ends.data(), five.data(), range));
  }
}

TEST_P(Quantize, StepsAreThoseOfTheirTwin) {
  const Draws draws{9, 4, 5};
  for (int bits = 2; bits <= 8; ++bits)
    for (int64_t n : odd_sizes()) {
      const int most = (1 << (bits - 1)) - 1;
      const StepCode code{.step = 0.75f, .inverse = 1 / 0.75f, .bits = bits, .most = most};
      for (const Draws* with : {static_cast<const Draws*>(nullptr), &draws}) {
        Input input = input_of(n, static_cast<uint32_t>(bits));
        const int64_t bytes = kernel::packed_bytes(n, bits);
        Bytes codes(static_cast<size_t>(bytes) + 1, std::byte{0xa5});
        ASSERT_TRUE(kernel::encode_steps(codes.data(), input.in(), code, with));
        EXPECT_EQ(codes.back(), std::byte{0xa5});
        Floats out(static_cast<size_t>(n) + 1, 1);
        ASSERT_TRUE(kernel::add_steps(out.data(), n, codes.data(), code));
        EXPECT_EQ(out[n], 1);
        const Floats x = input.x();
        for (int64_t i = 0; i < n; ++i) {
          const int k = std::clamp(rounded(x[i] * code.inverse, with, i), -most, most);
          ASSERT_EQ(bits_at(codes.data(), i * bits, bits), k + most);
          const float value = static_cast<float>(k) * 0.75f;
          ASSERT_EQ(out[i], 1 + value);
          ASSERT_EQ(input.next[i], (x[i] - value) / input.scale);
        }
      }
    }
  std::byte three{0xff};
  float out[4] = {};
  EXPECT_FALSE(kernel::add_steps(out, 4, &three, {}));
}

TEST_P(Quantize, SignsAreThoseOfTheirTwin) {
  std::vector<int64_t> sizes = odd_sizes();
  for (int64_t n = 1; n <= 17; ++n) sizes.push_back(n);
  for (int64_t n : sizes) {
    Input input = input_of(n, static_cast<uint32_t>(n));
    if (n > 4) input.values[4] = 0;
    if (n > 5) input.values[5] = -0.0f;
    const int64_t bytes = (n + 7) / 8;
    Bytes codes(static_cast<size_t>(bytes) + 1, std::byte{0xa5});
    ASSERT_TRUE(kernel::encode_signs(codes.data(), input.in(), 0.5f));
    EXPECT_EQ(codes.back(), std::byte{0xa5});
    Floats out(static_cast<size_t>(n) + 1, 1);
    ASSERT_TRUE(kernel::add_signs(out.data(), n, codes.data(), 0.5f));
    EXPECT_EQ(out[n], 1);
    const Floats x = input.x();
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(bits_at(codes.data(), i, 1), std::signbit(x[i]));
      const float value = std::copysign(0.5f, x[i]);
      ASSERT_EQ(out[i], 1 + value);
      ASSERT_EQ(input.next[i], (x[i] - value) / input.scale);
    }
    if (n % 8 == 0) continue;
    codes[static_cast<size_t>(bytes) - 1] |= std::byte{0x80};
    EXPECT_FALSE(kernel::add_signs(out.data(), n, codes.data(), 0.5f)) << "after the last";
  }
}

TEST_P(Quantize, NarrowOnesAreThoseOfTheirTwin) {
  for (DType dtype : {DType::f16, DType::bf16})
    for (int64_t n : odd_sizes()) {
      Input input = input_of(n, static_cast<uint32_t>(n));
      if (n > 9) input.values[3] = 1e6f, input.values[8] = -kMost / 2;
      Bytes codes(static_cast<size_t>(2 * n) + 2, std::byte{0xa5});
      std::byte* at = codes.data() + 1;  // any address will do
      const kernel::Narrowed made = kernel::encode_narrow(at, dtype, input.in(), 4);
      ASSERT_TRUE(made.finite);
      EXPECT_EQ(codes.back(), std::byte{0xa5});
      Floats out(static_cast<size_t>(n) + 1, 1);
      kernel::add_narrow(out.data(), n, at, dtype, 0.25f);
      EXPECT_EQ(out[n], 1);
      const Floats x = input.x();
      int64_t beyond = 0;
      for (int64_t i = 0; i < n; ++i) {
        uint16_t code,
            expected = dtype == DType::f16 ? half_bits(4 * x[i]) : bfloat16_bits(4 * x[i]);
        std::memcpy(&code, at + 2 * i, 2);
        if ((expected & 0x7fff) == (dtype == DType::f16 ? 0x7c00 : 0x7f80)) --expected, ++beyond;
        ASSERT_EQ(code, expected) << x[i];
        const float value = (dtype == DType::f16 ? half_value(code) : bfloat16_value(code)) / 4;
        ASSERT_EQ(out[i], 1 + value);
        ASSERT_EQ(input.next[i], (x[i] - value) / input.scale);
      }
      EXPECT_EQ(made.beyond, beyond);
    }
}

TEST_P(Quantize, EighthsAreThoseOfTheirDefinition) {
  for (kernel::Fp8 f : {kernel::Fp8::e4m3, kernel::Fp8::e5m2})
    for (int64_t block : {0, 64})
      for (int64_t n : odd_sizes()) {
        const Format& format = f == kernel::Fp8::e4m3 ? e4m3_format() : e5m2_format();
        const kernel::EighthCode how{f, block};
        Input input = input_of(n, static_cast<uint32_t>(n));
        if (n > 20) input.values[20] = 1e-12f;
        if (n > 21) input.values[21] = 0;
        Bytes powers(static_cast<size_t>(how.powers(n)) + 1, std::byte{0xa5}),
            codes(static_cast<size_t>(n) + 1, std::byte{0xa5});
        const kernel::Eighths made =
            kernel::encode_eighths(powers.data(), codes.data(), input.in(), how);
        ASSERT_TRUE(made.finite);
        EXPECT_EQ(codes.back(), std::byte{0xa5});
        EXPECT_EQ(powers.back(), std::byte{0xa5});
        Floats out(static_cast<size_t>(n) + 1, 1);
        ASSERT_TRUE(kernel::add_eighths(out.data(), n, powers.data(), codes.data(), how));
        EXPECT_EQ(out[n], 1);
        const Floats x = input.x();
        int64_t vanished = 0;
        float largest = 0;
        for (int64_t i = 0; i < n; ++i) {
          if (block > 0 && i % block == 0) largest = 0;
          const int64_t end = block > 0 ? std::min(n, i / block * block + block) : n;
          if (block > 0 ? i % block == 0 : i == 0)
            for (int64_t j = i; j < end; ++j) largest = std::max(largest, std::abs(x[j]));
          const int k = static_cast<int>(powers[block > 0 ? i / block : 0]) - 127;
          const double most = f == kernel::Fp8::e4m3 ? 464 : 61439;  // rounded to the largest
          ASSERT_LE(std::ldexp(double{largest}, k), most);
          ASSERT_GT(std::ldexp(double{largest}, k + 1), most);
          const int code = format.nearest(std::ldexp(double{x[i]}, k));
          ASSERT_LE(code % format.sign(), format.last_finite());
          ASSERT_EQ(static_cast<int>(codes[i]), code) << x[i];
          const float value = static_cast<float>(std::ldexp(format.value(code), -k));
          vanished += value == 0 && x[i] != 0;
          ASSERT_EQ(out[i], 1 + value);
          ASSERT_EQ(input.next[i], (x[i] - value) / input.scale);
        }
        EXPECT_EQ(made.vanished, vanished);
        if (n == 0) continue;
        for (int bad : {f == kernel::Fp8::e4m3 ? 0x7f : 0x7c, 0xff}) {
          Bytes hostile = codes;
          hostile[static_cast<size_t>(n) / 2] = static_cast<std::byte>(bad);
          EXPECT_FALSE(kernel::add_eighths(out.data(), n, powers.data(), hostile.data(), how));
        }
        for (int bad : {0, 254, 255}) {
          powers[0] = static_cast<std::byte>(bad);
          EXPECT_FALSE(kernel::add_eighths(out.data(), n, powers.data(), codes.data(), how));
        }
      }
}

TEST_P(Quantize, TheLargestFloatsAreNotRoundedToInfinity) {
  const Floats x = {kMost, -kMost, std::nextafter(kMost, 0.0f)};
  const FedBack in{.values = x.data(), .numel = 3};
  const auto is_close = [&](const Floats& out, double relative) {
    for (size_t i = 0; i < 3; ++i) EXPECT_LE(std::abs(out[i] / x[i] - 1), relative) << out[i];
  };
  Bytes codes(6), power(1);
  for (DType dtype : {DType::f16, DType::bf16}) {
    Floats out(3);
    kernel::encode_narrow(codes.data(), dtype, in, 0x1p-113f);
    kernel::add_narrow(out.data(), 3, codes.data(), dtype, 0x1p113f);
    is_close(out, dtype == DType::f16 ? 0x1p-11 : 0x1p-8);
  }
  for (kernel::Fp8 f : {kernel::Fp8::e4m3, kernel::Fp8::e5m2}) {
    Floats out(3);
    kernel::encode_eighths(power.data(), codes.data(), in, {f});
    ASSERT_TRUE(kernel::add_eighths(out.data(), 3, power.data(), codes.data(), {f}));
    is_close(out, f == kernel::Fp8::e4m3 ? 0x1p-4 : 0x1p-3);
  }
}

TEST_P(Quantize, MagnitudesAreAddedInOneOrder) {
  for (int64_t n : {0, 1, 17, 4095, 4096, 4097, 70001}) {
    Input input = input_of(n, 3);
    for (int64_t i = 0; i < n; i += 7) input.values[i] = input.residual[i] = 0;
    const Floats x = input.x();
    double sum = 0;
    float largest = 0;
    for (float v : x) {
      sum += std::abs(v);
      largest = std::max(largest, std::abs(v));
    }
    const kernel::Magnitudes got = kernel::sum_magnitudes(input.in());
    EXPECT_NEAR(got.sum, sum, sum * 0x1p-15);
    EXPECT_EQ(got.zeros, (n + 6) / 7);
    EXPECT_EQ(got.largest, largest);
    EXPECT_EQ(kernel::largest_magnitude(input.in()), largest);
    const cpu::Isa set = cpu::isa();
    cpu::use_isa(cpu::Isa::baseline);
    const ThreadBudget one(1);
    EXPECT_EQ(kernel::sum_magnitudes(input.in()).sum, got.sum) << "the same bits";
    cpu::use_isa(set);
  }
  const Floats equal(100000, 0x1.fffep-3f);  // 16 bits: exact, however many
  EXPECT_EQ(kernel::sum_magnitudes({.values = equal.data(), .numel = 100000}).sum,
            100000 * 0x1.fffep-3);
  const Floats huge(5000, kMost);
  EXPECT_NEAR(kernel::sum_magnitudes({.values = huge.data(), .numel = 5000}).sum / kMost, 5000, 1);
}

TEST(Shortened, NumbersHaveAsManyBitsAsAskedFor) {
  const Random random(3, RandomStream::tests);
  for (uint64_t i = 0; i < 10000; ++i) {
    const float x = std::bit_cast<float>(random.word(i) & 0x7fffffff);
    if (!(x <= kMost)) continue;
    const float nearest = kernel::shorten(x, 17, Shorten::nearest);
    const float up = kernel::shorten(x, 17, Shorten::up);
    for (float v : {nearest, up}) {
      EXPECT_EQ(std::bit_cast<uint32_t>(v) & 0x7f, 0);
      EXPECT_TRUE(v >= 0x1p-126f && v <= kMost);
      EXPECT_EQ(kernel::shorten(v, 17, Shorten::up), v);
      if (x < 0x1p-126f || x > 3.4e38f) continue;
      EXPECT_LE(std::abs(double{v} - x), (v == up ? 0x1p-16 : 0x1p-17) * x) << x;
    }
    EXPECT_TRUE(up >= x || x > 3.4e38f) << x;
  }
  EXPECT_EQ(kernel::shorten(0, 17, Shorten::up), 0);
  EXPECT_EQ(kernel::shorten(1, 17, Shorten::up), 1);
  EXPECT_EQ(kernel::shorten(std::nextafter(1.0f, 2.0f), 17, Shorten::up), 1 + 0x1p-16f);
}

TEST(PowerBelow, IsTheLargestThatFits) {
  EXPECT_EQ(kernel::power_below(896, 448), 0.5f);  // O13
  EXPECT_EQ(kernel::power_below(448, 448), 1);
  EXPECT_EQ(kernel::power_below(449, 448), 0.5f);
  EXPECT_EQ(kernel::power_below(1, 448), 256);
  EXPECT_EQ(kernel::power_below(3, 4), 1);
  EXPECT_EQ(kernel::power_below(0x1p-149f, 448), 0x1p126f);
  EXPECT_EQ(kernel::power_below(kMost, 448), 0x1p-120f);
  for (float none : {0.0f, NAN, INFINITY}) EXPECT_EQ(kernel::power_below(none, 448), 1);
  const Random random(4, RandomStream::tests);
  for (uint64_t i = 0; i < 10000; ++i) {
    const float x = std::bit_cast<float>(random.word(i) & 0x7fffffff);
    if (!(x <= kMost) || x < 0x1p-115f) continue;
    const double power = kernel::power_below(x, 448);
    EXPECT_LE(x * power, 448) << x;
    EXPECT_GT(x * power * 2, 448) << x;
  }
}

}  // namespace
}  // namespace lockstep::test
