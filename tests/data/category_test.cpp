#include "data/category.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace lockstep::data {
namespace {

TEST(KnownFaults, O50_HashingCategoryStrings) {
  EXPECT_EQ(category_hash("foo"), 0x33bf00a859c4ba3fu);
  EXPECT_EQ(category_hash("\xC3\xA9"), 0x17d757dfb8b46f78u);
  std::set<uint64_t> hashes;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    hashes.insert(category_hash(text));
    const int32_t row = category_row(text, 1000);
    EXPECT_GE(row, 0);
    EXPECT_LT(row, 1000);
  }
  EXPECT_EQ(hashes.size(), 256u);
  EXPECT_EQ(category_row(uint64_t{4138058784}, 1000), 784);  // wrong: -512, 512
  EXPECT_EQ(category_row(~uint64_t{0}, 10), 5);
  EXPECT_EQ(category_row("", 1000), 0) << "an empty field is missing: row 0";
  EXPECT_NE(category_hash("") % 1000, 0u) << "and not the hash of no bytes";
}

}  // namespace
}  // namespace lockstep::data
