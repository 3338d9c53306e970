#include "core/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/parallel.h"

namespace lockstep {
namespace {

TEST(Team, EveryPieceRunsOnceOverManyJobs) {
  for (int job = 0; job < 20000; ++job) {
    const int pieces = 1 + job % 5;
    int hits[5] = {};
    run_pieces(pieces, hits, [](void* context, int piece) { ++static_cast<int*>(context)[piece]; });
    for (int piece = 0; piece < 5; ++piece) ASSERT_EQ(hits[piece], piece < pieces ? 1 : 0);
  }
}

TEST(Team, CallersOnSeveralThreadsGetTheirOwnResults) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&wrong, caller] {
      const ThreadBudget budget(3);
      for (int job = 0; job < 2000; ++job) {
        std::vector<int> out(300, -1);
        parallel_for(300, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) out[i] = caller;
        });
        for (int x : out) wrong += x != caller;
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Team, APieceMayCallTheTeamAgain) {
  const ThreadBudget budget(4);
  std::atomic<int> count{0};
  parallel_for(4, 1, [&](int64_t, int64_t) {
    parallel_for(100, 1,
                 [&](int64_t begin, int64_t end) { count += static_cast<int>(end - begin); });
  });
  EXPECT_EQ(count, 400);
}

TEST(Team, ThrowsTheFirstPiecesExceptionAfterAllPiecesAreDone) {
  const ThreadBudget budget(4);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> done{0};
    try {
      parallel_for(4, 1, [&](int64_t begin, int64_t) {
        ++done;
        if (begin > 0) throw std::runtime_error(std::to_string(begin));
      });
      FAIL() << "nothing thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "1");
    }
    EXPECT_EQ(done, 4);
  }
}

// After the spin, which is far shorter than this.
TEST(Team, MembersSleepWhenNobodyCalls) {
  const ThreadBudget budget(2);
  const auto call = [] { parallel_for(2, 1, [](int64_t, int64_t) {}); };
  for (int i = 0; i < 1000; ++i) call();  // waits end soon: the spin is long
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 20) << "of all threads, in 200 ms of nothing";
  call();
}

TEST(Team, MoreMembersThanCoresIsOnlySlow) {
  const ThreadBudget budget(32);
  std::vector<int> hits(3200);
  parallel_for(3200, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++hits[i];
  });
  EXPECT_EQ(hits, std::vector<int>(3200, 1));
}

}  // namespace
}  // namespace lockstep
