#pragma once
#include "core/kernels/pooling.h"
#include "layers/module.h"

namespace lockstep::layers {

/// Layers without parameters over images [N, C, rows, columns].

/// The largest element of each window.
class MaxPool final : public Module {
 public:
  explicit MaxPool(const kernel::Pooling& options) : options_(options) {}
  Tensor operator()(const Tensor& x) const;

 private:
  kernel::Pooling options_;
};

/// The mean of each window.
class AveragePool final : public Module {
 public:
  explicit AveragePool(const kernel::Pooling& options,
                       kernel::Divisor divisor = kernel::Divisor::image)
      : options_(options), divisor_(divisor) {}
  Tensor operator()(const Tensor& x) const;

 private:
  kernel::Pooling options_;
  kernel::Divisor divisor_;
};

/// The mean of each plane: [N, C].
class GlobalAveragePool final : public Module {
 public:
  Tensor operator()(const Tensor& x) const;
};

/// [N, …] as [N, product of the rest].
class Flatten final : public Module {
 public:
  Tensor operator()(const Tensor& x) const;
};

}  // namespace lockstep::layers
