#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

// The counter itself: linked into this program as into lockstep_mallocs.
#include "benchmarks/count_mallocs.cpp"

namespace lockstep::test {
namespace {

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

template <class F>
int64_t calls_of(F&& f) {
  const int64_t before = lockstep_malloc_calls();
  f();
  return lockstep_malloc_calls() - before;
}

void release(void* block) {
  asm volatile("" ::"r"(block) : "memory");  // so that no pair of calls is optimised away
  std::free(block);
}

TEST(CountMallocs, EveryWayToAskIsOne) {
  EXPECT_EQ(calls_of([] {}), 0);
  EXPECT_EQ(calls_of([] { release(std::malloc(10)); }), 1);
  EXPECT_EQ(calls_of([] { release(std::calloc(10, 10)); }), 1);
  EXPECT_EQ(calls_of([] { release(std::realloc(std::malloc(10), 1000)); }), 2);
  EXPECT_EQ(calls_of([] { release(std::aligned_alloc(64, 640)); }), 1);
  EXPECT_EQ(calls_of([] {
              void* block = nullptr;
              ASSERT_EQ(::posix_memalign(&block, 64, 640), 0);
              release(block);
            }),
            1);
  EXPECT_EQ(calls_of([] { release(::strdup("a word")); }), 1);  // inside the C library
  EXPECT_EQ(calls_of([] { const auto block = std::make_unique<std::string>(100, 'x'); }), 2);
}

TEST(CountMallocs, OtherThreadsCount) {
  std::atomic<bool> go{false};
  std::thread other([&] {
    while (!go) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) release(std::malloc(10));
  });
  EXPECT_GE(calls_of([&] {
              go = true;
              other.join();
            }),
            100);
}

#endif

}  // namespace
}  // namespace lockstep::test
