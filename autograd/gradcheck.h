#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace lockstep::autograd {

struct GradcheckOptions {
  double step =
      1e-2;  ///< of the central difference; f32 has 24 bits, so neither much smaller nor larger
  double absolute = 2e-3;  ///< allowed difference: absolute + relative · |numeric|
  double relative = 2e-2;
  uint64_t seed = 1;  ///< of the random projection that turns outputs into a scalar
};

/// Compares the gradients of f with central differences, for every element of every input, through
/// a random projection of f's output. Returns "" or the first disagreement: input, element, both
/// values.
std::string gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                      const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace lockstep::autograd
