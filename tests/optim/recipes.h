#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/kernels/elementwise.h"
#include "core/memory_state.h"
#include "core/random.h"
#include "optim/flat_params.h"
#include "optim/optimizer.h"

/// What the tests of optimisers share: buffers without a module, and every optimiser with settings.
namespace lockstep::optim {

// A flat buffer without a module behind it.
struct Buffer {
  explicit Buffer(std::vector<int64_t> sizes, std::vector<bool> decay = {},
                  DType params = DType::f32, DType grads = DType::f32) {
    int64_t total = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      slices.push_back({.name = std::string(1, static_cast<char>('a' + i)),
                        .shape = {sizes[i]},
                        .begin = total,
                        .end = total + sizes[i],
                        .decay = !decay.empty() && decay[i]});
      total += sizes[i];
    }
    param = zeros({total}, params);
    grad = zeros({total}, grads);
  }
  FlatView view() const { return {.param = param, .grad = grad, .slices = slices}; }
  void set(const Tensor& x, const std::vector<float>& numbers) const {
    kernel::cast(x, from_values(numbers));
  }
  std::vector<ParamSlice> slices;
  Tensor param, grad;
};

// One step with `gradient`, divided by `weight`.
inline void step(Optimizer& optimizer, const Buffer& buffer, const std::vector<float>& gradient,
                 const StepVerdict& verdict = {}) {
  buffer.set(buffer.grad, gradient);
  optimizer.step(verdict);
}

inline MemoryState state_of(Optimizer& optimizer) {
  MemoryState state;
  state.save([&](StateIo& io) { optimizer.state(io); });
  return state;
}

inline std::vector<float> random_values(int64_t n, uint32_t key) {
  const Random random(1, RandomStream::tests, key);
  std::vector<float> numbers(n);
  for (int64_t i = 0; i < n; ++i) numbers[i] = static_cast<float>(random.normal(i));
  return numbers;
}

struct Recipe {
  std::string name, spec;
  OptimizerOptions options;
};
inline void PrintTo(const Recipe& recipe, std::ostream* out) { *out << recipe.name; }

inline const Recipe kRecipes[] = {
    {"sgd", "sgd", {.lr = 0.1, .weight_decay = 0.1}},
    {"sgd_momentum", "sgd", {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}},
    {"sgd_dampening", "sgd", {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1}},
    {"sgd_nesterov", "sgd", {.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1}},
    {"adam", "adam", {.lr = 0.01, .weight_decay = 0.1}},
    {"adamw", "adamw", {.lr = 0.01, .weight_decay = 0.1}},
    {"adamw_betas", "adamw", {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-3}},
};

class Recipes : public ::testing::TestWithParam<Recipe> {};

}  // namespace lockstep::optim
