#include "core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/check.h"

namespace lockstep {
namespace {

TEST(ParallelFor, EveryIndexOnceInContiguousPieces) {
  for (int threads : {1, 2, 5}) {
    ThreadBudget budget(threads);
    for (int64_t n : {0, 1, 2, 7, 100, 1001})
      for (int64_t grain : {1, 10, 1000}) {
        std::vector<int> hits(n, 0), piece_of(n, -1);
        parallel_for(n, grain, [&](int64_t begin, int64_t end, int piece) {
          for (int64_t i = begin; i < end; ++i) {
            ++hits[i];
            piece_of[i] = piece;
          }
        });
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(hits[i], 1);
          ASSERT_LT(piece_of[i], parallel_pieces(n, grain));
          ASSERT_TRUE(i == 0 || piece_of[i] == piece_of[i - 1] ||
                      piece_of[i] == piece_of[i - 1] + 1);
        }
      }
  }
}

TEST(ParallelFor, ThePiecesDependOnSizeGrainAndBudgetOnly) {
  ThreadBudget budget(3);
  std::vector<std::vector<int64_t>> ends(10);
  for (auto& e : ends) {
    e.assign(3, -1);
    parallel_for(1000, 10, [&](int64_t, int64_t end, int piece) { e[piece] = end; });
  }
  for (const auto& e : ends) EXPECT_EQ(e, ends[0]);
}

TEST(ParallelFor, SmallWorkStaysOnTheCallingThread) {
  ThreadBudget budget(4);
  const auto here = std::this_thread::get_id();
  parallel_for(99, 100, [&](int64_t, int64_t) { EXPECT_EQ(std::this_thread::get_id(), here); });
}

TEST(ParallelFor, ABudgetOfOneNeverStartsATeam) {
  ThreadBudget budget(1);
  const auto here = std::this_thread::get_id();
  parallel_for(1000000, 1, [&](int64_t, int64_t) { EXPECT_EQ(std::this_thread::get_id(), here); });
}

TEST(ThreadBudget, BelongsToTheThreadAndIsRestored) {
  const int before = thread_budget();
  EXPECT_GE(available_cores(), 1);
  {
    ThreadBudget budget(3);
    EXPECT_EQ(thread_budget(), 3);
    {
      ThreadBudget inner(1);
      EXPECT_EQ(thread_budget(), 1);
    }
    EXPECT_EQ(thread_budget(), 3);
    std::thread([] { EXPECT_EQ(thread_budget(), available_cores()); }).join();
  }
  EXPECT_EQ(thread_budget(), before);
  EXPECT_THROW(ThreadBudget(0), UsageError);
}

}  // namespace
}  // namespace lockstep
