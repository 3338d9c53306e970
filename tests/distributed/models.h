#pragma once
#include <string>
#include <utility>
#include <vector>

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/ops.h"
#include "core/random.h"
#include "distributed/reducer.h"
#include "layers/linear.h"
#include "layers/module.h"
#include "precision.h"

namespace lockstep::distributed {

/// Named parameters of which the loss is a linear function: gradients can be chosen freely.
class Linears final : public layers::Module {
 public:
  struct Spec {
    std::string name;
    int64_t numel = 1;
    float value = 0;
  };
  explicit Linears(const std::vector<Spec>& specs) : w(specs.size()) {
    for (size_t i = 0; i < specs.size(); ++i) {
      w[i] = full({specs[i].numel}, specs[i].value);
      add_parameter(specs[i].name, w[i], Decay::yes);
    }
  }
  /// One parameter "w" of one element, 0.
  Linears() : Linears({{"w"}}) {}

  /// A loss whose gradient with respect to each parameter named by its number is as given, for all
  /// of the parameter's elements.
  Tensor loss(const std::vector<std::pair<int, float>>& gradients) const {
    Tensor sum;
    for (const auto& [i, gradient] : gradients) {
      const Tensor term = ops::scale(ops::sum(w[static_cast<size_t>(i)]), gradient);
      sum = sum.defined() ? ops::add(sum, term) : term;
    }
    return sum;
  }
  Tensor loss(float gradient) const { return loss({{0, gradient}}); }

  float value(int i = 0) const { return floats(w[static_cast<size_t>(i)])[0]; }
  float grad(int i = 0) const { return floats(autograd::grad(w[static_cast<size_t>(i)]))[0]; }

  std::vector<Tensor> w;
};

/// A small regression net, deterministic in its seed, with parameters of very different sizes.
class SmallNet final : public layers::Module {
 public:
  explicit SmallNet(uint64_t seed)
      : init_(seed), first_(init_, 6, 40), second_(init_, 40, 24), third_(init_, 24, 3) {
    add_child("first", first_);
    add_child("second", second_);
    add_child("third", third_);
  }
  /// Σ of squared errors of micro-batch number `batch` of a fixed random data set, 4 samples each.
  Tensor loss_sum(int64_t batch) const {
    const Random random(99, RandomStream::tests, static_cast<uint32_t>(batch));
    std::vector<float> x(4 * 6), y(4 * 3);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i));
    for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(random.normal(1000 + i));
    const Tensor h = ops::gelu(second_(ops::gelu(first_(from_values(x, {4, 6})))));
    const Tensor error = ops::subtract(third_(h), from_values(y, {4, 3}));
    return ops::sum(ops::unary(error, kernel::Unary::square));
  }

 private:
  layers::Initialiser init_;
  layers::Linear first_, second_, third_;
};

}  // namespace lockstep::distributed
