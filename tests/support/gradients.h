#pragma once
#include <functional>

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "tests/support/tensors.h"

namespace lockstep::testing {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

/// f and its oracle agree in values and in the gradients of all inputs, within `tolerance` of the
/// largest element of each.
inline void expect_same_gradients(const Function& f, const Function& oracle,
                                  const std::vector<Tensor>& inputs, double tolerance = 2e-6) {
  const auto run = [&](const Function& function) {
    std::vector<Tensor> x;
    for (const Tensor& in : inputs) {
      x.push_back(from_values(values(in), in.shape()));
      autograd::require_grad(x.back());
    }
    const Tensor y = function(x);
    std::vector<Tensor> results = {y.detach()};
    autograd::backward(y, randn(y.shape(), 99));
    for (const Tensor& leaf : x) results.push_back(autograd::grad(leaf));
    return results;
  };
  const auto a = run(f), b = run(oracle);
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(near(a[i], b[i], tolerance))
        << (i == 0 ? "values" : "gradient of input ") << static_cast<int>(i) - 1;
}

}  // namespace lockstep::testing
