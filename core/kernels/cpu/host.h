#pragma once
#include <cstdint>
#include <utility>

#include "core/allocator.h"
#include "core/dispatch.h"
#include "core/kernels/cpu/isa.h"
#include "core/parallel.h"

/// What the host files of the CPU kernels share. Not for *_loops.cpp.
namespace lockstep::cpu {

/// Elements below which a thread is not worth waking, for work of about a cycle an element.
inline constexpr int64_t kGrain = 16384;
/// Rows of `cost` such elements each that make up that much work.
inline int64_t row_grain(int64_t cost) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(cost, 1));
}

/// Working memory from the allocator, returned at the end of the scope. Uninitialised; null for a
/// count of 0.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : bytes_(checked_mul(count, sizeof(T))),
        data_(bytes_ ? static_cast<T*>(host_allocator().allocate(bytes_)) : nullptr) {}
  ~Scratch() {
    if (bytes_) host_allocator().release(data_, bytes_);
  }
  Scratch(Scratch&& other) noexcept
      : bytes_(std::exchange(other.bytes_, 0)), data_(std::exchange(other.data_, nullptr)) {}
  Scratch& operator=(Scratch&&) = delete;
  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  int64_t bytes_;
  T* data_;
};

}  // namespace lockstep::cpu
