#pragma once
#include <fmt/core.h>

#include <string_view>
#include <type_traits>

#include "core/profile.h"
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
    if (Profile::any()) [[unlikely]]
      return profiled(f, first, args...);
    return f(first, args...);
  }
  std::string_view name() const { return name_; }
  void provide(DeviceType device, Function f) { functions_[static_cast<int>(device)] = f; }

  /// What a call costs, for profiles. Not told otherwise: the bytes of all tensors, once each.
  using CostFunction = Cost (*)(const Tensor&, Args...);
  void count(CostFunction f) { cost_ = f; }
  Cost cost(const Tensor& first, Args... args) const {
    if (cost_ != nullptr) return cost_(first, args...);
    return {.bytes = static_cast<double>((bytes_in(first) + ... + bytes_in(args)))};
  }

 private:
  [[gnu::noinline]] R profiled(Function f, const Tensor& first, Args... args) const {
    const ProfileSpan span(Profile::Kind::kernel, name_, cost(first, args...));
    return f(first, args...);
  }
  template <class T>
  static int64_t bytes_in(const T& argument) {
    if constexpr (std::is_same_v<T, Tensor>)
      return argument.defined() ? argument.bytes() : 0;
    else
      return 0;
  }

  std::string_view name_;
  Function functions_[kDeviceTypes] = {};
  CostFunction cost_ = nullptr;
};

/// Registers an implementation at load time.
struct Provide {
  template <class R, class... Args>
  Provide(Kernel<R(const Tensor&, Args...)>& kernel, DeviceType device,
          typename Kernel<R(const Tensor&, Args...)>::Function f) {
    kernel.provide(device, f);
  }
};

/// Registers what calls of a kernel cost (core/kernels/costs.cpp).
struct CountCost {
  template <class R, class... Args>
  CountCost(Kernel<R(const Tensor&, Args...)>& kernel,
            typename Kernel<R(const Tensor&, Args...)>::CostFunction f) {
    kernel.count(f);
  }
};

/// Shape and dtype checks in one line, for the top of a kernel.
void expect_shape(std::string_view kernel, std::string_view what, const Tensor& x,
                  const Shape& expected);
void expect_dtype(std::string_view kernel, std::string_view what, const Tensor& x, DType expected);

}  // namespace lockstep
