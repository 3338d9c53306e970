#include "apps/cli/parse.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::apps {
namespace {

TEST(Parse, NumbersAreWholeWordsAndFinite) {
  EXPECT_EQ(parse_number("1.5"), 1.5);
  EXPECT_EQ(parse_number("1e-3"), 1e-3);
  EXPECT_EQ(parse_number("+2"), 2);
  EXPECT_EQ(parse_number("5e-324"), 5e-324);
  for (const char* bad :
       {"", "1,5", "1.5x", " 1", "nan", "inf", "-inf", "1e999", "0x10", "+-1", "--1"})
    EXPECT_EQ(parse_number(bad), std::nullopt) << bad;
}

TEST(Parse, IntegersMayBeWrittenAsPowersAndNeverWrap) {
  EXPECT_EQ(parse_integer("2000"), 2000);
  EXPECT_EQ(parse_integer("-3"), -3);
  EXPECT_EQ(parse_integer("1e6"), 1'000'000);
  EXPECT_EQ(parse_integer("9223372036854775807"), std::numeric_limits<int64_t>::max());
  for (const char* bad : {"", "1.5", "9223372036854775808", "1e30", "12a", "1_000"})
    EXPECT_EQ(parse_integer(bad), std::nullopt) << bad;
}

TEST(Parse, TheClosestNameIsFoundForATypingError) {
  const std::vector<std::string> names{"--batch", "--backend", "--global-batch", "--lr"};
  EXPECT_EQ(closest("--bacth", names), "--batch");
  EXPECT_EQ(closest("--globalbatch", names), "--global-batch");
  EXPECT_EQ(closest("--compress", names), "");
  EXPECT_EQ(closest(std::string(10000, 'x'), names), "");
}

}  // namespace
}  // namespace lockstep::apps
