#include "autograd/gradcheck.h"

#include <cmath>

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/no_grad.h"
#include "core/random.h"

namespace lockstep::autograd {
namespace {

// Σ projection · f(inputs), in double.
double project(const std::function<Tensor(const std::vector<Tensor>&)>& f,
               const std::vector<Tensor>& inputs, const std::vector<float>& projection) {
  const NoGrad off;
  const Tensor y = f(inputs);
  double total = 0;
  const float* value = y.data<float>();
  for (size_t i = 0; i < projection.size(); ++i) total += double{projection[i]} * value[i];
  return total;
}

}  // namespace

std::string gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                      const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  std::vector<Tensor> x;  // copies of their own, so that the caller's tensors stay as they are
  for (const Tensor& input : inputs) {
    const bool floating = input.dtype() == DType::f32;
    x.push_back(floating ? from_values(values(input), input.shape()) : input);
    if (floating) require_grad(x.back());
  }
  const Tensor y = f(x);
  const Random random(options.seed, RandomStream::tests);
  std::vector<float> projection(y.numel());
  for (size_t i = 0; i < projection.size(); ++i)
    projection[i] = static_cast<float>(random.normal(i));
  backward(y, from_values(projection, y.shape()));

  for (size_t k = 0; k < x.size(); ++k) {
    if (!requires_grad(x[k])) continue;
    if (!grad(x[k]).defined()) return fmt::format("input {} got no gradient", k);
    const std::vector<float> analytic = values(grad(x[k]));
    for (int64_t i = 0; i < x[k].numel(); ++i) {
      const float at = x[k].data<float>()[i];
      const float above = static_cast<float>(at + options.step),
                  below = static_cast<float>(at - options.step);
      x[k].mutable_data<float>()[i] = above;
      const double high = project(f, x, projection);
      x[k].mutable_data<float>()[i] = below;
      const double low = project(f, x, projection);
      x[k].mutable_data<float>()[i] = at;
      const double numeric = (high - low) / (double{above} - double{below});
      if (!(std::abs(analytic[i] - numeric) <=
            options.absolute + options.relative * std::abs(numeric)))
        return fmt::format("input {} element {}: backward gives {}, the difference quotient {}", k,
                           i, analytic[i], numeric);
    }
  }
  return "";
}

}  // namespace lockstep::autograd
