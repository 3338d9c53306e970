// Linked into a program, this counts its calls of malloc and its kin, those of every library
// included: the executable's definitions come before the C library's, to which they pass on. Left
// out under sanitizers, which do the same.
#include "apps/bench/malloc_calls.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

extern "C" {

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

static std::atomic<int64_t> calls{0};
static void count() noexcept { calls.fetch_add(1, std::memory_order_relaxed); }

int64_t lockstep_malloc_calls() { return calls.load(std::memory_order_relaxed); }

void* malloc(size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void* calloc(size_t number, size_t bytes) {
  count();
  return __libc_calloc(number, bytes);
}
void* realloc(void* block, size_t bytes) {
  count();
  return __libc_realloc(block, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** block, size_t alignment, size_t bytes) {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* got = memalign(alignment, bytes);
  if (got == nullptr) return ENOMEM;
  *block = got;
  return 0;
}
}

#endif
