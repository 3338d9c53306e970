#include "data/dataset.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lockstep::data {
namespace {

std::vector<int32_t> count_up(int64_t n) {
  std::vector<int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TokenBatch batch_of(int64_t rows, int64_t context) {
  return {Tensor::empty({rows, context}, DType::i32), Tensor::empty({rows, context}, DType::i32)};
}

TEST(KnownFaults, O23_LanguageModelWindows) {
  const TokenWindows windows(count_up(8), 4);
  EXPECT_EQ(windows.count(), 4);  // and not 3, as is sometimes asked for
  const TokenBatch batch = batch_of(4, 4);
  for (int64_t start = 0; start < 4; ++start) windows.copy_to(start, batch, start);
  EXPECT_EQ(values<int32_t>(batch.inputs),
            (std::vector<int32_t>{0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 3, 4, 5, 6}));
  EXPECT_EQ(values<int32_t>(batch.targets),
            (std::vector<int32_t>{1, 2, 3, 4, 2, 3, 4, 5, 3, 4, 5, 6, 4, 5, 6, 7}));
  EXPECT_THROW(windows.copy_to(4, batch, 0), UsageError) << "would read beyond the last token";
  EXPECT_EQ(TokenWindows(count_up(5), 4).count(), 1);
  for (int64_t n : {0, 1, 4}) {
    try {
      TokenWindows(count_up(n), 4);
      FAIL() << n << " tokens";
    } catch (const SystemError& error) {
      EXPECT_EQ(error.fault(), Fault::file);
      EXPECT_EQ(error.what(),
                fmt::format("[data.windows] the text is too short for a context of 4; "
                            "expected at least 5 tokens, got {}",
                            n));
    }
  }
}

TEST(TokenWindows, DisjointOnesPredictEveryTokenOnceButARemainder) {
  EXPECT_EQ(TokenWindows(count_up(9), 4).disjoint(), 2);
  EXPECT_EQ(TokenWindows(count_up(8), 4).disjoint(), 1);
  EXPECT_EQ(TokenWindows(count_up(5), 4).disjoint(), 1);
}

TEST(TokenWindows, RefusesWhatDoesNotFit) {
  EXPECT_THROW(TokenWindows(count_up(8), 0), UsageError);
  const TokenWindows windows(count_up(8), 4);
  EXPECT_THROW(windows.copy_to(-1, batch_of(1, 4), 0), UsageError);
  EXPECT_THROW(windows.copy_to(0, batch_of(1, 4), 1), UsageError);
  EXPECT_THROW(windows.copy_to(0, batch_of(1, 5), 0), UsageError);
}

TEST(SplitTail, CutsAtTheSamePlaceAsTheUsualRecipe) {
  const TailSplit split = split_tail(count_up(1115394), 0.1);
  EXPECT_EQ(split.training.size(), 1003854u);  // int(0.9 * 1115394)
  EXPECT_EQ(split.tail.front(), 1003854);
  EXPECT_EQ(split.tail.back(), 1115393);
  EXPECT_TRUE(split_tail(count_up(10), 0).tail.empty());
  EXPECT_THROW(split_tail(count_up(10), 1), UsageError);
  EXPECT_THROW(split_tail(count_up(10), -0.1), UsageError);
}

}  // namespace
}  // namespace lockstep::data
