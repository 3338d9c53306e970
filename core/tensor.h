#pragma once
#include <memory>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "core/storage.h"

namespace lockstep {

/// What the autograd room hangs on a tensor; opaque here.
class AutogradSlot {
 public:
  virtual ~AutogradSlot() = default;
};

/// A handle to a dense row-major array. Copies share elements, version and autograd slot. Views are
/// a reshape or a slice of the leading dimension; everything else is an explicit copy.
class Tensor {
 public:
  Tensor() = default;  ///< undefined: "no tensor here"

  /// Uninitialised elements.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = kCpu);

  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const { return impl()->shape; }
  int rank() const { return shape().rank(); }
  int64_t size(int dim) const { return shape()[dim]; }
  int64_t numel() const { return shape().numel(); }
  int64_t bytes() const { return numel() * size_of(dtype()); }
  DType dtype() const { return impl()->dtype; }
  Device device() const { return impl()->device; }

  /// Elements for reading. The type must match dtype().
  template <class T>
  const T* data() const {
    return static_cast<const T*>(raw(dtype_of<T>));
  }
  /// Elements for writing: also bumps the version, so that a saved copy of this tensor is known to
  /// be out of date. Kernels call it for their outputs and for nothing else.
  template <class T>
  T* mutable_data() const {
    return static_cast<T*>(mutable_raw(dtype_of<T>));
  }
  const void* bytes_data() const;
  void* mutable_bytes_data() const;

  /// The value of a tensor with one element, read as double.
  double item() const;

  /// Same elements, other shape of as many elements.
  Tensor reshape(const Shape& shape) const;
  /// Rows [begin, end) of the leading dimension.
  Tensor slice(int64_t begin, int64_t end) const;
  /// `shape.numel()` elements from `offset` on, as a root of its own: its version is not that of
  /// this tensor. This is how parameters view a flat buffer.
  Tensor slice_as_root(int64_t offset, const Shape& shape) const;
  /// The same elements without the autograd slot.
  Tensor detach() const;

  /// Times the elements of this tensor's root were (possibly) written.
  uint64_t version() const;
  void bump_version() const;

  bool same_storage(const Tensor& other) const;
  bool is(const Tensor& other) const { return impl_ == other.impl_; }

  const std::shared_ptr<AutogradSlot>& autograd() const { return impl()->autograd; }
  void set_autograd(std::shared_ptr<AutogradSlot> slot) const {
    impl()->autograd = std::move(slot);
  }

 private:
  struct Impl {
    std::shared_ptr<Storage> storage;
    int64_t offset = 0;  // in bytes
    Shape shape;
    DType dtype = DType::f32;
    Device device;
    uint64_t version = 0;
    std::shared_ptr<Impl> root;  // whose version counts; null for a root
    std::shared_ptr<AutogradSlot> autograd;
  };
  Impl* impl() const {
    if (!impl_) [[unlikely]]
      throw UsageError("[core.tensor] an undefined tensor was used");
    return impl_.get();
  }
  Tensor view(int64_t byte_offset, const Shape& shape) const;
  const void* raw(DType expected) const;
  void* mutable_raw(DType expected) const;
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

/// Filled with zeros, or with `value` rounded to the dtype.
Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = kCpu);
Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = kCpu);
/// A new tensor with the shape, dtype and device of another, uninitialised.
Tensor empty_like(const Tensor& x);
Tensor zeros_like(const Tensor& x);
/// A tensor that holds a copy of `values`.
template <class T>
Tensor from_values(const std::vector<T>& values, const Shape& shape);
template <class T>
Tensor from_values(const std::vector<T>& values) {
  return from_values(values, Shape{static_cast<int64_t>(values.size())});
}
/// All elements, copied out. For tests and reports, not for hot paths.
template <class T = float>
std::vector<T> values(const Tensor& x);
/// "f32 [2, 3]"
std::string describe(const Tensor& x);

}  // namespace lockstep

/// As describe(); an argument of check() costs nothing unless the check fails.
template <>
struct fmt::formatter<lockstep::Tensor> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  fmt::format_context::iterator format(const lockstep::Tensor& x,
                                       fmt::format_context& context) const;
};
