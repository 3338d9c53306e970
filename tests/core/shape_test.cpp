#include "core/shape.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Shape, CountsElementsRowsAndColumns) {
  const Shape s{2, 3, 5};
  EXPECT_EQ(s.rank(), 3);
  EXPECT_EQ(s.numel(), 30);
  EXPECT_EQ(s.rows(), 6);
  EXPECT_EQ(s.last(), 5);
  EXPECT_EQ(s[-1], 5);
  EXPECT_EQ(s[0], 2);
  EXPECT_EQ(to_string(s), "[2, 3, 5]");
  EXPECT_THROW(s[3], UsageError);
  EXPECT_THROW(s[-4], UsageError);
}

TEST(Shape, AScalarHasOneElementAndAnEmptyOneNone) {
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(Shape().last(), 1);
  EXPECT_EQ(to_string(Shape()), "[]");
  EXPECT_EQ((Shape{3, 0}).numel(), 0);
  EXPECT_EQ((Shape{3, 0}).rows(), 3);
}

TEST(Shape, ComparesByExtents) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{3, 2}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{2, 3, 1}));
}

TEST(Shape, RefusesWhatDoesNotFit) {
  EXPECT_THROW((Shape{-1}), UsageError);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), UsageError);
  EXPECT_THROW((Shape{int64_t{1} << 32, int64_t{1} << 32}), UsageError);
}

TEST(KnownFaults, O31_OffsetsBeyond32Bits) {
  // Row 32768 of a matrix 65536 wide begins at 2^31, a positive number, though the indices fit int.
  const int32_t row = 32768, width = 65536;
  EXPECT_EQ(checked_mul(row, width), 2147483648);
  EXPECT_EQ((Shape{row + 1, width}).numel(), 2147549184);
  EXPECT_THROW(checked_mul(int64_t{1} << 62, 2), UsageError);
  EXPECT_THROW(checked_add(std::numeric_limits<int64_t>::max(), 1), UsageError);
}

}  // namespace
}  // namespace lockstep
