#include "distributed/compress/sparse_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/random.h"
#include "distributed/compress/bad_code.h"
#include "distributed/compress/sparse_positions.h"

namespace lockstep::distributed {
namespace {

using Values = SparseBlock::Values;
using Floats = std::vector<float>;
constexpr Values kAllValues[] = {Values::fp32, Values::fp16, Values::bf16, Values::int8};

struct Elements {
  std::vector<int32_t> positions;
  Floats values;
};

// `count` of n positions, any that a permutation brings to the front.
Elements drawn(int64_t n, int64_t count, uint64_t seed) {
  const Random random(seed, RandomStream::tests);
  const Permutation order(static_cast<uint64_t>(std::max<int64_t>(n, 1)), random);
  Elements some;
  for (int64_t i = 0; i < count; ++i)
    some.positions.push_back(static_cast<int32_t>(order(static_cast<uint64_t>(i))));
  std::ranges::sort(some.positions);
  for (int64_t i = 0; i < count; ++i)
    some.values.push_back(static_cast<float>(random.normal(static_cast<uint64_t>(i))));
  return some;
}

// The bytes of a block over two pieces, of which the first has a third of the elements.
std::vector<std::byte> written(Values kind, int64_t n, Elements& elements, bool padded) {
  const SparseBlock block(kind);
  std::vector<int64_t> ends;
  if (n > 2) ends.push_back(n / 3);
  if (n > 0) ends.push_back(n);
  Floats steps;
  size_t begin = 0;
  for (const int64_t end : ends) {
    const auto next = static_cast<size_t>(std::ranges::lower_bound(elements.positions, end) -
                                          elements.positions.begin());
    const std::span<float> its = std::span(elements.values).subspan(begin, next - begin);
    float largest = 0;
    for (float v : its) largest = std::max(largest, std::abs(v));
    steps.push_back(block.step(largest));
    block.round(its, steps.back(), {});
    begin = next;
  }
  const auto count = static_cast<int64_t>(elements.positions.size()),
             pieces = static_cast<int64_t>(ends.size()), room = block.bytes(n, pieces, count);
  std::vector<std::byte> code(static_cast<size_t>(room), std::byte{0xee});
  const CodeBytes bytes =
      block.write({.positions = elements.positions, .values = elements.values, .steps = steps},
                  ends, padded ? room : 0, code);
  EXPECT_LE(bytes.total(), room);
  if (padded) {
    EXPECT_EQ(bytes.total(), room);
  }
  EXPECT_LE(room, block.most_bytes(n, pieces, std::min(n, count + 3)));
  code.resize(static_cast<size_t>(bytes.total()));
  return code;
}

std::vector<int64_t> ends_of(int64_t n) {
  std::vector<int64_t> ends;
  if (n > 2) ends.push_back(n / 3);
  if (n > 0) ends.push_back(n);
  return ends;
}

TEST(SparseBlock, WhatIsWrittenIsReadForAllSizesCountsAndValues) {
  for (int64_t n : {0, 1, 2, 3, 7, 8, 9, 17, 64, 100, 1000, 70001, 300000})
    for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{4}, n / 100, n / 20, n / 2, n - 1, n})
      for (Values kind : kAllValues)
        for (bool padded : {false, true}) {
          if (count < 0 || count > std::min<int64_t>(n, 20000)) continue;
          Elements elements = drawn(n, count, static_cast<uint64_t>(n + count));
          const std::vector<std::byte> code = written(kind, n, elements, padded);
          Floats out(static_cast<size_t>(n), 1), expected = out;
          for (size_t i = 0; i < elements.positions.size(); ++i)
            expected[static_cast<size_t>(elements.positions[i])] += elements.values[i];
          const SparseBlock block(kind);
          ASSERT_NO_THROW(block.read_add(code, ends_of(n), out)) << count << " of " << n;
          ASSERT_EQ(out, expected) << count << " of " << n;
        }
}

TEST(SparseBlock, PositionsTakeTheFewestBytes) {
  EXPECT_EQ(position_code(1'000'000, 1), PositionCode::words);  // 4; gaps could be 32
  EXPECT_EQ(position_code(200'000, 4), PositionCode::gaps);     // at most 14; words 16
  EXPECT_EQ(position_code(100'000, 1000), PositionCode::gaps);  // 2 % with 16 bits each
  EXPECT_EQ(position_code(1600, 100), PositionCode::gaps);
  EXPECT_EQ(position_code(1600, 101), PositionCode::bits);  // 200
  EXPECT_EQ(position_code(1600, 1600), PositionCode::all);
  EXPECT_EQ(position_code(0, 0), PositionCode::all);
  const SparseBlock block(Values::int8);
  EXPECT_EQ(block.bytes(100'000, 2, 1000), 4 + 8 + 1000 + 2000 + 2);  // one gap may be long
  EXPECT_EQ(block.bytes(1600, 1, 1600), 4 + 4 + 1600);
}

TEST(SparseBlock, GapsAroundTheLongestOfSixteenBits) {
  for (int32_t gap : {65533, 65534, 65535, 65536, 131069, 131070, 131071}) {
    const int64_t n = 200'000;
    std::vector<int32_t> positions = {gap, gap + 1, gap + 2, static_cast<int32_t>(n - 1)};
    std::vector<std::byte> bytes(100, std::byte{0xee});
    ASSERT_EQ(position_code(n, 4), PositionCode::gaps);
    const int64_t used = write_positions(PositionCode::gaps, positions, 0, n, bytes.data());
    EXPECT_LE(used, position_bytes(PositionCode::gaps, n, 4));
    bytes.resize(static_cast<size_t>(used));
    std::vector<int32_t> read;
    read_positions(PositionCode::gaps, bytes, 4, n, [&](int64_t i, int64_t at) {
      EXPECT_EQ(i, static_cast<int64_t>(read.size()));
      read.push_back(static_cast<int32_t>(at));
    });
    EXPECT_EQ(read, positions) << gap;
  }
}

TEST(SparseBlock, ValuesOfAnySizeKeepTheirPrecision) {
  constexpr float kMost = std::numeric_limits<float>::max(), kLeast = 0x1p-149f;
  for (float largest : {kMost, 1e30f, 65504.0f, 1.0f, 1e-3f, 1e-20f, 1e-37f})
    for (Values kind : kAllValues) {
      const SparseBlock block(kind);
      Floats v = {largest, -largest, largest / 3, 0}, lost(v.size());
      const Floats before = v;
      block.round(v, block.step(largest), lost);
      const float relative = kind == Values::fp32   ? 0
                             : kind == Values::fp16 ? 0x1p-11f
                             : kind == Values::bf16 ? 0x1p-8f
                                                    : 0.5f / 127;
      for (size_t i = 0; i < v.size(); ++i) {
        EXPECT_TRUE(std::isfinite(v[i])) << largest;
        EXPECT_LE(std::abs(lost[i]), relative * largest * 1.0001f) << largest;
        EXPECT_EQ(v[i] + lost[i], before[i]) << largest;
      }
      Floats again = v;
      block.round(again, block.step(largest), lost);
      EXPECT_EQ(again, v);
    }
  for (Values kind : kAllValues) {  // the least there is, and nothing
    const SparseBlock block(kind);
    for (float largest : {kLeast, 0.0f}) {
      Floats v = {largest, -largest, 0};
      block.round(v, block.step(largest), {});
      for (float x : v) EXPECT_LE(std::abs(x), 2 * largest);
    }
  }
}

// What a reader says of bytes that no encoder writes.
std::string complaint(Values kind, const std::vector<std::byte>& code, int64_t n) {
  Floats out(static_cast<size_t>(n));
  try {
    SparseBlock(kind).read_add(code, ends_of(n), out);
  } catch (const BadCode& e) {
    return e.what();
  }
  return "";
}

template <class T>
std::vector<std::byte> with(std::vector<std::byte> code, size_t at, T value) {
  std::memcpy(code.data() + at, &value, sizeof value);
  return code;
}

TEST(SparseBlock, BytesThatAreNoCodeAreRefused) {
  const int64_t words_n = 1'000'000, gaps_n = 100'000, bits_n = 100;
  Elements two = {{5, 700'000}, {1, 2}}, many = drawn(gaps_n, 1000, 1), half = drawn(bits_n, 50, 2);
  const auto words = written(Values::fp32, words_n, two, true),
             gaps = written(Values::fp32, gaps_n, many, true),
             bits = written(Values::int8, bits_n, half, true);
  EXPECT_EQ(complaint(Values::fp32, words, words_n), "");
  EXPECT_EQ(complaint(Values::fp32, gaps, gaps_n), "");
  EXPECT_EQ(complaint(Values::int8, bits, bits_n), "");

  EXPECT_EQ(complaint(Values::fp32, {}, bits_n), "it has 0 bytes and no count");
  EXPECT_EQ(complaint(Values::int8, with(bits, 0, uint32_t{101}), bits_n),
            "it counts 101 of 100 elements");
  EXPECT_EQ(complaint(Values::fp32, with(words, 0, uint32_t{3}), words_n),
            "it has 20 bytes; 3 of 1000000 elements take 28 to 28");
  const std::string huge = complaint(Values::fp32, with(words, 0, ~uint32_t{0}), words_n);
  EXPECT_EQ(huge, "it counts 4294967295 of 1000000 elements");

  const size_t first = 4 + 8;  // of two words, behind count and values
  EXPECT_EQ(complaint(Values::fp32, with(words, first, uint32_t{1'000'000}), words_n),
            "a position is 1000000 of 1000000 elements");
  EXPECT_EQ(complaint(Values::fp32, with(words, first + 4, uint32_t{5}), words_n),
            "position 5 comes after 5: not ascending");
  EXPECT_EQ(complaint(Values::fp32, with(words, first + 4, uint32_t{4}), words_n),
            "position 4 comes after 5: not ascending");
  for (float value : {INFINITY, -INFINITY, NAN})
    EXPECT_NE(complaint(Values::fp32, with(words, 4, value), words_n), "");

  const size_t gap = 4 + 4000;
  EXPECT_NE(complaint(Values::fp32, with(gaps, gap, uint16_t{65534}), gaps_n), "");
  EXPECT_NE(complaint(Values::fp32, with(gaps, gap, ~uint64_t{0}), gaps_n), "");
  EXPECT_EQ(complaint(Values::fp32, with(gaps, gaps.size() - 1, uint8_t{1}), gaps_n),
            "the bytes behind it are not zero");
  EXPECT_NE(complaint(Values::fp32, {gaps.begin(), gaps.end() - 3}, gaps_n), "");
  auto longer = gaps;
  longer.push_back(std::byte{0});
  EXPECT_NE(complaint(Values::fp32, longer, gaps_n), "");

  const size_t step = 4, value = 4 + 8, bitmap = value + 50;
  for (float bad : {-1.0f, float{INFINITY}, float{NAN}, std::numeric_limits<float>::max()})
    EXPECT_NE(complaint(Values::int8, with(bits, step, bad), bits_n), "") << bad;
  EXPECT_NE(complaint(Values::int8, with(bits, value, int8_t{-128}), bits_n), "");
  EXPECT_EQ(complaint(Values::int8, with(bits, bitmap + 12, uint8_t{0xf0}), bits_n).substr(0, 13),
            "a position is");
  EXPECT_NE(complaint(Values::int8, with(bits, bitmap, ~uint64_t{0}), bits_n), "");
  EXPECT_NE(complaint(Values::int8, with(bits, bitmap, uint64_t{0}), bits_n), "");

  Elements some = drawn(bits_n, 50, 3);
  const auto halves = written(Values::fp16, bits_n, some, true);
  for (float bad : {0.0f, 3.0f, -0.5f, 0x1p114f, 0x1p-127f, float{INFINITY}, float{NAN}})
    EXPECT_NE(complaint(Values::fp16, with(halves, step, bad), bits_n), "") << bad;
  EXPECT_NE(complaint(Values::fp16, with(halves, value, uint16_t{0x7c00}), bits_n), "");
}

// Whatever the bytes are: an error, or a sum within the range.
TEST(SparseBlock, NoBytesMakeItWriteOutside) {
  const Random random(3, RandomStream::tests);
  uint64_t draws = 0;
  const auto draw = [&](uint64_t below) { return random.below(below, draws++); };
  int refused = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    const int64_t n = static_cast<int64_t>(draw(3) == 0 ? draw(200'000) : draw(64)),
                  count = static_cast<int64_t>(
                      draw(static_cast<uint64_t>(std::min<int64_t>(n, 40)) + 1));
    const Values kind = kAllValues[draw(4)];
    Elements elements = drawn(n, count, draws);
    std::vector<std::byte> code = written(kind, n, elements, draw(2) == 0);
    for (uint64_t change = draw(4); change > 0; --change)
      if (!code.empty()) code[draw(code.size())] = static_cast<std::byte>(draw(256));
    if (draw(4) == 0) code.resize(draw(code.size() + 8));
    constexpr size_t kGuard = 64;
    Floats all(static_cast<size_t>(n) + 2 * kGuard, -7);
    const std::span<float> out = std::span(all).subspan(kGuard, static_cast<size_t>(n));
    try {
      SparseBlock(kind).read_add(code, ends_of(n), out);
    } catch (const BadCode&) {
      ++refused;
    }
    for (size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(all[i], -7);
      ASSERT_EQ(all[all.size() - 1 - i], -7);
    }
    for (float v : out) ASSERT_TRUE(std::isfinite(v));
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace lockstep::distributed
