#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::f32), 4);
  EXPECT_EQ(size_of(DType::bf16), 2);
  EXPECT_EQ(size_of(DType::i64), 8);
  EXPECT_EQ(size_of(DType::u8), 1);
  EXPECT_EQ(name_of(DType::u8), "u8");
  EXPECT_EQ(name_of(DType::f32), "f32");
  EXPECT_TRUE(is_floating(DType::bf16));
  EXPECT_FALSE(is_floating(DType::i32));
}

// The casts of whole tensors are held against these in kernels/cast_test.cpp, over all codes.
TEST(DType, KnownHalfCodes) {
  EXPECT_EQ(half_bits(1.0f), 0x3c00);
  EXPECT_EQ(half_bits(-2.0f), 0xc000);
  EXPECT_EQ(half_bits(65504.0f), 0x7bff);
  EXPECT_EQ(half_bits(65520.0f), 0x7c00) << "halfway to 2^16 rounds to infinity";
  EXPECT_EQ(half_bits(0x1p-24f), 0x0001);
  EXPECT_EQ(half_bits(0x1p-25f), 0x0000) << "a tie goes to even";
  EXPECT_EQ(half_bits(0x1.8p-25f), 0x0001);
  EXPECT_EQ(half_bits(-0.0f), 0x8000);
  EXPECT_EQ(half_bits(0x1.ffcp-15f), 0x0400)
      << "the largest subnormal and a half rounds up to normal";
  EXPECT_EQ(half_value(0x3555), 0.333251953125f);
}

TEST(DType, KnownBfloat16Codes) {
  EXPECT_EQ(bfloat16_bits(1.0f), 0x3f80);
  EXPECT_EQ(bfloat16_bits(1.00390625f), 0x3f80) << "a tie goes to even";
  EXPECT_EQ(bfloat16_bits(1.01171875f), 0x3f82) << "a tie goes to even";
  EXPECT_EQ(bfloat16_bits(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(bfloat16_value(bfloat16_bits(NAN))));
}

}  // namespace
}  // namespace lockstep
