#pragma once
#include <fmt/core.h>

#include <string_view>

#include "core/tensor.h"

namespace lockstep {

/// An operation on tensors with one implementation per type of device. It is called like a function
/// and runs the implementation for the device of its first argument; where there is none it throws
/// by name. Declared once in the family's header; a device's file provides it:
///
///     inline constinit Kernel<void(const Tensor& out, const Tensor& x)> relu{"relu"};   // the
///     header const Provide relu_cpu{relu, DeviceType::cpu, [](const Tensor& out, const Tensor& x)
///     { … }};
template <class Signature>
class Kernel;

template <class R, class... Args>
class Kernel<R(const Tensor&, Args...)> {
 public:
  using Function = R (*)(const Tensor&, Args...);
  constexpr explicit Kernel(std::string_view name) : name_(name) {}

  R operator()(const Tensor& first, Args... args) const {
    const DeviceType device = first.device().type;
    const Function f = functions_[static_cast<int>(device)];
    if (f == nullptr) [[unlikely]]
      throw UsageError(fmt::format("[kernel.{}] no {} kernel", name_, name_of(device)));
    return f(first, args...);
  }
  std::string_view name() const { return name_; }
  void provide(DeviceType device, Function f) { functions_[static_cast<int>(device)] = f; }

 private:
  std::string_view name_;
  Function functions_[kDeviceTypes] = {};
};

/// Registers an implementation at load time.
struct Provide {
  template <class R, class... Args>
  Provide(Kernel<R(const Tensor&, Args...)>& kernel, DeviceType device,
          typename Kernel<R(const Tensor&, Args...)>::Function f) {
    kernel.provide(device, f);
  }
};

/// Shape and dtype checks in one line, for the top of a kernel.
void expect_shape(std::string_view kernel, std::string_view what, const Tensor& x,
                  const Shape& expected);
void expect_dtype(std::string_view kernel, std::string_view what, const Tensor& x, DType expected);

}  // namespace lockstep
