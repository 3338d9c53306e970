#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/random.h"
#include "core/tensor.h"

/// Tensors for tests: made at random, compared with a tolerance.
namespace lockstep::testing {

using Floats = std::vector<float>;

/// sd · standard normal numbers, the same for the same seed.
inline Tensor randn(const Shape& shape, uint64_t seed, double sd = 1) {
  const Random random(seed, RandomStream::tests);
  Floats v(shape.numel());
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(sd * random.normal(i));
  return from_values(v, shape);
}

/// Uniform in [low, high).
inline Tensor uniform(const Shape& shape, uint64_t seed, double low, double high) {
  const Random random(seed, RandomStream::tests, 1);
  Floats v(shape.numel());
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<float>(low + (high - low) * random.uniform(i));
  return from_values(v, shape);
}

/// Same shape, and no element further apart than `tolerance` times the largest magnitude of
/// `expected` (at least `floor`). NaN differs from everything.
inline ::testing::AssertionResult near(const Tensor& got, const Tensor& expected, double tolerance,
                                       double floor = 0) {
  if (!got.defined() || !expected.defined() || !(got.shape() == expected.shape()))
    return ::testing::AssertionFailure()
           << "expected " << describe(expected) << ", got " << describe(got);
  const Floats a = values(got), b = values(expected);
  double largest = floor;
  for (float v : b) largest = std::max(largest, std::abs(double{v}));
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(double{a[i]} - b[i]) <= tolerance * largest))
      return ::testing::AssertionFailure()
             << "element " << i << ": expected " << b[i] << ", got " << a[i] << " (largest "
             << largest << ", tolerance " << tolerance << ")";
  return ::testing::AssertionSuccess();
}

}  // namespace lockstep::testing
