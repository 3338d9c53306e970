#include "core/allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "core/check.h"
#include "core/tensor.h"

// The sanitizers answer a request that no machine can fill by stopping, unless told.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace lockstep {
namespace {

TEST(Allocator, BlocksAreAlignedAndWritable) {
  for (int64_t bytes : {0, 1, 63, 64, 65, 1000, 4097, 3 << 20}) {
    void* block = host_allocator().allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
    std::memset(block, 0xab, static_cast<size_t>(bytes));
    host_allocator().release(block, bytes);
  }
}

TEST(Allocator, ReturnedBlocksAreHandedOutAgain) {
  for (int64_t bytes : {64, 100, 5000, 1 << 20}) {
    void* first = host_allocator().allocate(bytes);
    host_allocator().release(first, bytes);
    const int64_t calls = host_allocator().stats().system_calls;
    void* second = host_allocator().allocate(bytes);
    EXPECT_EQ(second, first);
    EXPECT_EQ(host_allocator().stats().system_calls, calls);
    host_allocator().release(second, bytes);
  }
}

TEST(Allocator, SizesOfAClassShareBlocksAndWasteAtMostAQuarter) {
  for (int64_t bytes : {1, 65, 129, 300, 1025, 5000, 100000, 1 << 22}) {
    const int64_t before = host_allocator().stats().live;
    void* block = host_allocator().allocate(bytes);
    const int64_t taken = host_allocator().stats().live - before;
    EXPECT_GE(taken, bytes);
    EXPECT_LE(taken, std::max<int64_t>(bytes + 63, bytes + bytes / 4));
    host_allocator().release(block, bytes);
  }
}

TEST(Allocator, StatisticsAddUp) {
  const AllocatorStats before = host_allocator().stats();
  host_allocator().reset_peak();
  void* a = host_allocator().allocate(1 << 16);
  void* b = host_allocator().allocate(1 << 16);
  host_allocator().release(a, 1 << 16);
  const AllocatorStats after = host_allocator().stats();
  EXPECT_EQ(after.live - before.live, 1 << 16);
  EXPECT_EQ(after.peak - before.live, 2 << 16);
  EXPECT_EQ(after.requests - before.requests, 2);
  EXPECT_GE(after.reserved, after.live);
  host_allocator().release(b, 1 << 16);
  host_allocator().reset_peak();
  EXPECT_EQ(host_allocator().stats().peak, host_allocator().stats().live);
}

TEST(Allocator, TrimReturnsWhatIsIdle) {
  const auto idle = [] {
    return host_allocator().stats().reserved - host_allocator().stats().live;
  };
  host_allocator().trim();
  const int64_t before = idle();
  host_allocator().release(host_allocator().allocate(1 << 24), 1 << 24);
  EXPECT_EQ(idle(), before + (1 << 24));
  host_allocator().trim();
  EXPECT_EQ(idle(), before);
}

// Blocks of less than a huge page share pages, which go back once all blocks in them are idle.
TEST(Allocator, TrimReturnsSharedPagesWhenTheirLastBlockIsIdle) {
  Allocator& allocator = host_allocator();
  constexpr int64_t kBlock = 3 << 18;
  const auto idle = [&] { return allocator.stats().reserved - allocator.stats().live; };
  std::vector<unsigned char*> blocks(100);  // of ten slabs
  const int64_t calls = allocator.stats().system_calls;
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = static_cast<unsigned char*>(allocator.allocate(kBlock));
    std::memset(blocks[i], static_cast<int>(i), kBlock);
  }
  EXPECT_LE(allocator.stats().system_calls - calls, 12);
  for (size_t i = 0; i < blocks.size(); ++i)
    for (int64_t k : {int64_t{0}, kBlock - 1}) ASSERT_EQ(blocks[i][k], i) << "blocks overlap";
  for (size_t i = 1; i < blocks.size(); ++i) allocator.release(blocks[i], kBlock);
  allocator.trim();
  EXPECT_LE(idle(), 16 << 20) << "more than the slabs in which a block lives";
  EXPECT_EQ(blocks[0][kBlock - 1], 0);
  allocator.release(blocks[0], kBlock);
  const int64_t before = idle();
  allocator.trim();
  EXPECT_LE(idle(), before - kBlock);
}

TEST(Allocator, ImpossibleRequestsAreErrorsAndLeaveNoTrace) {
  const AllocatorStats before = host_allocator().stats();
  EXPECT_THROW(host_allocator().allocate(-1), UsageError);
  EXPECT_THROW(host_allocator().allocate(std::numeric_limits<int64_t>::max()), UsageError);
  try {
    host_allocator().allocate(int64_t{1} << 60);
    FAIL() << "an exabyte was handed out";
  } catch (const SystemError& e) {
    EXPECT_EQ(e.fault(), Fault::device);
    EXPECT_NE(std::string(e.what()).find(std::to_string(int64_t{1} << 60)), std::string::npos)
        << e.what();
  }
  const AllocatorStats after = host_allocator().stats();
  EXPECT_EQ(after.live, before.live);
  EXPECT_EQ(after.peak, before.peak);
  EXPECT_THROW(Tensor::empty({int64_t{1} << 58}), SystemError);
  EXPECT_THROW(Tensor::empty({int64_t{1} << 62}), UsageError)
      << "4 bytes each do not fit in 64 bits";
}

TEST(Allocator, BlocksMayBeFreedByAnotherThread) {
  std::vector<void*> blocks(100);
  for (void*& block : blocks) block = host_allocator().allocate(777);
  const int64_t live = host_allocator().stats().live;
  std::thread([&] {
    for (void* block : blocks) host_allocator().release(block, 777);
  }).join();
  EXPECT_LT(host_allocator().stats().live, live);
}

TEST(Allocator, ManyThreadsAtOnce) {
  const int64_t live = host_allocator().stats().live;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 2000; ++i) {
        const int64_t bytes = 64 * (1 + (i * 7 + t) % 50);
        auto* block = static_cast<unsigned char*>(host_allocator().allocate(bytes));
        std::memset(block, t, static_cast<size_t>(bytes));
        for (int64_t k : {int64_t{0}, bytes - 1})
          ASSERT_EQ(block[k], t) << "a block was handed out twice";
        host_allocator().release(block, bytes);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(host_allocator().stats().live, live);
}

TEST(Allocator, ATensorAskedForAgainNeedsNoNewMemory) {
  const auto step = [] {
    for (int i = 1; i < 20; ++i) Tensor::empty({i * 100}).slice(0, 1);
  };
  for (int i = 0; i < 3; ++i) step();
  const int64_t calls = host_allocator().stats().system_calls;
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(host_allocator().stats().system_calls, calls);
}

TEST(Pool, ObjectsMadeHereAndFreedThereDoNotPileUp) {
  // A loader makes, the trainer frees: the memory must come round again.
  const auto make = [] {
    std::vector<void*> objects(5000);
    std::thread([&] {
      for (void*& p : objects) p = pool_allocate(96);
    }).join();
    for (void* p : objects) pool_release(p, 96);
  };
  for (int i = 0; i < 3; ++i) make();
  const int64_t reserved = host_allocator().stats().reserved;
  for (int i = 0; i < 20; ++i) make();
  EXPECT_LE(host_allocator().stats().reserved, reserved + (1 << 18));
}

TEST(Pool, ObjectsOfAllSizesAndPooledPointers) {
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{32}, size_t{33}, size_t{1024}, size_t{1025}, size_t{5000}}) {
    void* p = pool_allocate(bytes);
    std::memset(p, 1, bytes);
    pool_release(p, bytes);
  }
  auto shared = make_pooled<std::pair<int, double>>(3, 4.5);
  EXPECT_EQ(shared->second, 4.5);
}

}  // namespace
}  // namespace lockstep
