#include "core/tensor.h"

#include <fmt/format.h>

#include <cstring>

#include "core/kernels/elementwise.h"

namespace lockstep {

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  auto impl = make_pooled<Impl>();
  impl->storage = make_pooled<Storage>(checked_mul(shape.numel(), size_of(dtype)), device);
  impl->shape = shape;
  impl->dtype = dtype;
  impl->device = device;
  return Tensor(std::move(impl));
}

const void* Tensor::raw(DType expected) const {
  if (expected != dtype()) [[unlikely]]
    throw UsageError(fmt::format("[core.tensor] dtype; expected {}, got {}", name_of(expected),
                                 name_of(dtype())));
  return bytes_data();
}
void* Tensor::mutable_raw(DType expected) const {
  bump_version();
  return const_cast<void*>(raw(expected));
}
const void* Tensor::bytes_data() const { return impl()->storage->data() + impl()->offset; }
void* Tensor::mutable_bytes_data() const {
  bump_version();
  return const_cast<void*>(bytes_data());
}

double Tensor::item() const {
  check(numel() == 1, "[core.tensor] item(); expected one element, got shape {}", shape());
  switch (dtype()) {
    case DType::f32:
      return *data<float>();
    case DType::f16:
      return *data<half>();
    case DType::bf16:
      return *data<bfloat16>();
    case DType::i64:
      return static_cast<double>(*data<int64_t>());
    case DType::i32:
      return *data<int32_t>();
    case DType::u8:
      return *data<uint8_t>();
  }
  return 0;
}

Tensor Tensor::view(int64_t byte_offset, const Shape& shape) const {
  auto made = make_pooled<Impl>();
  made->storage = impl()->storage;
  made->offset = impl()->offset + byte_offset;
  made->shape = shape;
  made->dtype = dtype();
  made->device = device();
  made->root = impl()->root ? impl()->root : impl_;
  return Tensor(std::move(made));
}

Tensor Tensor::reshape(const Shape& to) const {
  check(to.numel() == numel(), "[core.reshape] expected {} elements, got shape {}", numel(), to);
  return view(0, to);
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  check(rank() >= 1 && begin >= 0 && begin <= end && end <= size(0),
        "[core.slice] rows {}..{} of shape {}", begin, end, shape());
  const int64_t row = size(0) == 0 ? 0 : numel() / size(0);
  std::array<int64_t, Shape::kMaxRank> dims;
  std::copy(shape().dims().begin(), shape().dims().end(), dims.begin());
  dims[0] = end - begin;
  return view(begin * row * size_of(dtype()),
              Shape(std::span(dims).first(static_cast<size_t>(rank()))));
}

Tensor Tensor::slice_as_root(int64_t offset, const Shape& to) const {
  check(offset >= 0 && checked_add(offset, to.numel()) <= numel(),
        "[core.slice_as_root] elements {}+{} of a tensor of {}", offset, to.numel(), numel());
  Tensor made = view(offset * size_of(dtype()), to);
  made.impl_->root = nullptr;
  return made;
}

Tensor Tensor::detach() const { return view(0, shape()); }

uint64_t Tensor::version() const { return impl()->root ? impl()->root->version : impl()->version; }
void Tensor::bump_version() const { ++(impl()->root ? impl()->root->version : impl()->version); }
bool Tensor::same_storage(const Tensor& other) const {
  return impl()->storage == other.impl()->storage;
}

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor x = Tensor::empty(shape, dtype, device);
  kernel::fill(x, value);
  return x;
}
Tensor zeros(const Shape& shape, DType dtype, Device device) {
  return full(shape, 0, dtype, device);
}
Tensor empty_like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); }
Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), x.dtype(), x.device()); }

template <class T>
Tensor from_values(const std::vector<T>& values, const Shape& shape) {
  check(static_cast<int64_t>(values.size()) == shape.numel(),
        "[core.from_values] expected {} values for {}, got {}", shape.numel(), shape,
        values.size());
  Tensor x = Tensor::empty(shape, dtype_of<T>);
  if (!values.empty())
    std::memcpy(x.mutable_bytes_data(), values.data(), values.size() * sizeof(T));
  return x;
}

template <class T>
std::vector<T> values(const Tensor& x) {
  const T* begin = x.data<T>();
  return std::vector<T>(begin, begin + x.numel());
}

template Tensor from_values(const std::vector<float>&, const Shape&);
template Tensor from_values(const std::vector<half>&, const Shape&);
template Tensor from_values(const std::vector<bfloat16>&, const Shape&);
template Tensor from_values(const std::vector<int64_t>&, const Shape&);
template Tensor from_values(const std::vector<int32_t>&, const Shape&);
template Tensor from_values(const std::vector<uint8_t>&, const Shape&);
template std::vector<float> values(const Tensor&);
template std::vector<half> values(const Tensor&);
template std::vector<bfloat16> values(const Tensor&);
template std::vector<int64_t> values(const Tensor&);
template std::vector<int32_t> values(const Tensor&);
template std::vector<uint8_t> values(const Tensor&);

std::string describe(const Tensor& x) {
  if (!x.defined()) return "undefined";
  return fmt::format("{} {}", name_of(x.dtype()), to_string(x.shape()));
}

}  // namespace lockstep

fmt::format_context::iterator fmt::formatter<lockstep::Tensor>::format(
    const lockstep::Tensor& x, fmt::format_context& context) const {
  const std::string text = lockstep::describe(x);
  return std::copy(text.begin(), text.end(), context.out());
}
