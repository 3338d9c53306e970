#pragma once
#include <cstdint>
#include <initializer_list>

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
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  int64_t bytes_;
  T* data_;
};

inline void expect_f32(std::string_view kernel, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* x : tensors) expect_dtype(kernel, "an operand", *x, DType::f32);
}
/// All f32 and of one shape.
inline void expect_same(std::string_view kernel, std::initializer_list<const Tensor*> tensors) {
  expect_f32(kernel, tensors);
  for (const Tensor* x : tensors) expect_like(kernel, "an operand", *x, **tensors.begin());
}
inline void expect_vector(std::string_view kernel, std::string_view what, const Tensor& x,
                          int64_t n) {
  expect_dtype(kernel, what, x, DType::f32);
  expect_shape(kernel, what, x, Shape{n});
}

}  // namespace lockstep::cpu
