#include "core/allocator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "core/check.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace lockstep {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = 2 << 20;

// Four size classes to a doubling: at most a fifth of a block is unused.
int64_t round_to_class(int64_t bytes) {
  if (bytes <= kAlignment) return kAlignment;
  const int64_t step = std::max<int64_t>(
      kAlignment, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes - 1))) / 4);
  return checked_add(bytes, step - 1) / step * step;
}
int class_index(int64_t size) {
  const int power = std::bit_width(static_cast<uint64_t>(size)) - 1;
  return power * 4 + static_cast<int>((size >> (power - 2)) & 3);
}

// Memory for several blocks: 8 MiB on a boundary of 8 MiB.
//
// Note [Huge pages]
// A step walks through tens of megabytes, thousands of small pages, and in a virtual machine the
// processor pays dearly to look one up: the small GPT's step took 2 % longer. So blocks of less
// than a huge page are cut from slabs that are made of such pages; larger ones begin on a page of
// their own.
struct Slab {
  std::byte* begin;
  int64_t cut = 0;   // bytes that were handed out once
  int64_t idle = 0;  // of them, found in the free lists by trim()
};
constexpr int64_t kSlab = 8 << 20;
#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kGap = kAlignment;  // never to be touched, between the blocks of a slab
#else
constexpr int64_t kGap = 0;
#endif

std::byte* slab_begin(void* block) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(block) & ~uintptr_t{kSlab - 1});
}

std::byte* allocate_pages(int64_t bytes, int64_t alignment) {
  void* pages = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
#if defined(__linux__)
  if (pages != nullptr) ::madvise(pages, bytes, MADV_HUGEPAGE);
#endif
  return static_cast<std::byte*>(pages);
}

// Tells the address sanitizer, where there is one, which bytes of a block a caller may touch: those
// it asked for, and none once the block is returned.
void expose([[maybe_unused]] void* block, [[maybe_unused]] int64_t size,
            [[maybe_unused]] int64_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(block, static_cast<size_t>(size));
  ASAN_UNPOISON_MEMORY_REGION(block, static_cast<size_t>(bytes));
#endif
}

class CachingAllocator final : public Allocator {
 public:
  void* allocate(int64_t bytes) override {
    check(bytes >= 0, "[core.allocator] size; expected at least 0 bytes, got {}", bytes);
    const int64_t size = round_to_class(bytes);
    {
      std::lock_guard lock(mutex_);
      ++stats_.requests;
      auto& cached = free_[class_index(size)];
      if (!cached.empty()) {
        void* block = cached.back();
        cached.pop_back();
        count_live(size);
        expose(block, size, bytes);
        return block;
      }
    }
    void* block = take(size);
    if (block == nullptr) {  // give back what lies idle, then try once more
      trim();
      block = take(size);
    }
    std::lock_guard lock(mutex_);
    if (block == nullptr)
      throw SystemError(
          Fault::device,
          fmt::format("[core.allocator] out of memory; {} bytes requested while {} are in use; "
                      "a smaller batch or model needs less",
                      bytes, stats_.live));
    stats_.reserved += size;
    count_live(size);
    expose(block, size, bytes);
    return block;
  }

  void release(void* block, int64_t bytes) noexcept override {
    const int64_t size = round_to_class(bytes);
    std::lock_guard lock(mutex_);
    stats_.live -= size;
    expose(block, size, 0);
    free_[class_index(size)].push_back(block);
  }

  AllocatorStats stats() const override {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() override {
    std::lock_guard lock(mutex_);
    stats_.peak = stats_.live;
  }
  void trim() override {
    std::lock_guard lock(mutex_);
    for_idle_lists([&](std::vector<void*>& blocks, int64_t size) {
      if (size >= kHugePage) {
        for (void* block : blocks) free_pages(block, size);
        stats_.reserved -= size * static_cast<int64_t>(blocks.size());
        blocks.clear();
      }
      for (void* block : blocks) slab_of(block).idle += size + kGap;
    });
    const auto whole = [](const Slab& slab) { return slab.idle == slab.cut; };
    for_idle_lists([&](std::vector<void*>& blocks, int64_t size) {
      stats_.reserved -= size * static_cast<int64_t>(std::erase_if(
                                    blocks, [&](void* block) { return whole(slab_of(block)); }));
    });
    for (const Slab& slab : slabs_)
      if (whole(slab)) free_pages(slab.begin, kSlab);
    std::erase_if(slabs_, whole);
    for (Slab& slab : slabs_) slab.idle = 0;
  }

 private:
  // A new block, or null.
  void* take(int64_t size) {
    if (size >= kHugePage) {
      void* block = allocate_pages(size, kHugePage);
      const std::lock_guard lock(mutex_);
      stats_.system_calls += block != nullptr ? 1 : 0;
      return block;
    }
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const Slab& slab) { return slab.cut + size + kGap <= kSlab; };
    auto slab = std::find_if(slabs_.begin(), slabs_.end(), fits);
    if (slab == slabs_.end()) {
      std::byte* begin = allocate_pages(kSlab, kSlab);
      if (begin == nullptr) return nullptr;
      ++stats_.system_calls;
      expose(begin, kSlab, 0);
      slab = slabs_.insert(slab, {.begin = begin});
    }
    void* block = slab->begin + slab->cut;
    slab->cut += size + kGap;
    return block;
  }
  Slab& slab_of(void* block) {
    return *std::find_if(slabs_.begin(), slabs_.end(),
                         [begin = slab_begin(block)](const Slab& s) { return s.begin == begin; });
  }
  static void free_pages(void* pages, int64_t bytes) {
    expose(pages, bytes, bytes);
    std::free(pages);
  }
  template <class F>
  void for_idle_lists(F f) {
    for (int i = 0; i < static_cast<int>(free_.size()); ++i)
      f(free_[i], (int64_t{4} + i % 4) << (i / 4) >> 2);
  }
  void count_live(int64_t size) {
    stats_.live += size;
    stats_.peak = std::max(stats_.peak, stats_.live);
  }

  mutable std::mutex mutex_;
  AllocatorStats stats_;
  std::array<std::vector<void*>, 256> free_;
  std::vector<Slab> slabs_;
};

// Objects up to 1 KiB, in steps of 32 bytes. A thread keeps what it frees, whoever made it, up to
// kMostKept of a size; the rest goes back to the allocator, so that a thread that makes objects for
// another to free (a loader) finds them there again.
constexpr size_t kPoolStep = 32, kPoolLimit = 1024;
constexpr int kMostKept = 512;
struct FreeObject {
  FreeObject* next;
};
struct Pool {
  struct Bin {
    FreeObject* first = nullptr;
    int count = 0;
  };
  std::array<Bin, kPoolLimit / kPoolStep> bins;
  ~Pool() {
    for (size_t i = 0; i < bins.size(); ++i)
      while (FreeObject* object = bins[i].first) {
        bins[i].first = object->next;
        host_allocator().release(object, static_cast<int64_t>((i + 1) * kPoolStep));
      }
    gone = true;
  }
  static thread_local bool gone;  // objects that outlive their thread's pool go straight back
};
thread_local bool Pool::gone = false;
thread_local Pool pool;

}  // namespace

Allocator& host_allocator() {
  static auto* allocator = new CachingAllocator;  // never destroyed: tensors may outlive main
  return *allocator;
}

void* pool_allocate(size_t bytes) {
  if (bytes > kPoolLimit) return host_allocator().allocate(static_cast<int64_t>(bytes));
  const size_t i = (std::max<size_t>(bytes, 1) - 1) / kPoolStep;
  if (!Pool::gone) {
    Pool::Bin& bin = pool.bins[i];
    if (FreeObject* object = bin.first) {
      bin.first = object->next;
      --bin.count;
      return object;
    }
  }
  return host_allocator().allocate(static_cast<int64_t>((i + 1) * kPoolStep));
}

void pool_release(void* block, size_t bytes) noexcept {
  if (bytes > kPoolLimit) return host_allocator().release(block, static_cast<int64_t>(bytes));
  const size_t i = (std::max<size_t>(bytes, 1) - 1) / kPoolStep;
  if (!Pool::gone) {
    Pool::Bin& bin = pool.bins[i];
    if (bin.count < kMostKept) {
      bin.first = new (block) FreeObject{bin.first};
      ++bin.count;
      return;
    }
  }
  host_allocator().release(block, static_cast<int64_t>((i + 1) * kPoolStep));
}

}  // namespace lockstep
