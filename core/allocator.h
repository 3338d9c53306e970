#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace lockstep {

/// What an allocator did, in bytes and calls.
struct AllocatorStats {
  int64_t live = 0;          ///< bytes handed out and not yet returned
  int64_t peak = 0;          ///< largest `live` since the start or reset_peak()
  int64_t reserved = 0;      ///< bytes of blocks, live or cached; their slabs' rests not counted
  int64_t system_calls = 0;  ///< times the system was asked for memory
  int64_t requests = 0;      ///< times a caller asked
};

/// Hands out 64-byte aligned blocks. Implementations are safe to call from any thread.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Throws SystemError(device) with the size when memory is exhausted. 0 bytes is a valid request.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* block, int64_t bytes) noexcept = 0;
  virtual AllocatorStats stats() const = 0;
  virtual void reset_peak() = 0;
  /// Returns to the system what it can of the cached blocks: large ones, and pages that no block in
  /// use shares.
  virtual void trim() = 0;
};

/// The process's allocator for host memory: keeps returned blocks by size class, so that a training
/// step asks the system for nothing once it has run a few times.
Allocator& host_allocator();

/// Small objects (tensor headers, graph nodes) from thread-local free lists over host_allocator().
void* pool_allocate(size_t bytes);
void pool_release(void* block, size_t bytes) noexcept;

/// std-compatible face of the pool, for allocate_shared and small containers.
template <class T>
struct PoolAllocator {
  using value_type = T;
  PoolAllocator() = default;
  template <class U>
  PoolAllocator(const PoolAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(pool_allocate(n * sizeof(T))); }
  void deallocate(T* p, size_t n) noexcept { pool_release(p, n * sizeof(T)); }
  template <class U>
  friend bool operator==(PoolAllocator, PoolAllocator<U>) {
    return true;
  }
};

/// A shared object from the pool: one allocation, no call to malloc once warm.
template <class T, class... Args>
std::shared_ptr<T> make_pooled(Args&&... args) {
  return std::allocate_shared<T>(PoolAllocator<T>(), std::forward<Args>(args)...);
}

}  // namespace lockstep
