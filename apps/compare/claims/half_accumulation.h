#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "apps/compare/claim.h"
#include "apps/compare/statistics/paired.h"
#include "core/dtype.h"

namespace lockstep::apps {

/// k micro-gradients added in half precision.
struct HalfAccumulation {
  int64_t k = 0;
  Interval rounding;  ///< error over the sampling error of the gradient: least and most seen
  std::optional<statistics::PairedTest> loss;  ///< over fp32's; none where it was not trained
};
/// The rule of B4c. In the order of k; those above 32 decide nothing.
Verdict judge_half_accumulation(const std::vector<HalfAccumulation>& points);

/// Which micro-gradients are multiplied by the loss scale, before they are rounded; the sum is
/// divided by it.
enum class Scaled { none, all, last };
enum class Division {
  before,  ///< each micro-loss by k
  after    ///< the sum
};

/// A running mean of k micro-gradients, each rounded to `dtype` and added in it.
class HalfSum {
 public:
  HalfSum(DType dtype, Scaled scaled, Division division, int64_t k, int64_t numel);
  void add(std::span<const float> gradient);
  /// Of the k that were added.
  std::vector<double> mean() const;

 private:
  DType dtype_;
  Scaled scaled_;
  Division division_;
  int64_t k_, added_ = 0;
  std::vector<float> sum_;
};

}  // namespace lockstep::apps
