#pragma once
#include <limits>

namespace lockstep::data {

/// A mean over samples (or tokens), whatever batches and ranks they came in: sums and weights are
/// added up and divided once.
class WeightedMean {
 public:
  /// `sum` over `weight` samples.
  void add(double sum, double weight) {
    sum_ += sum;
    weight_ += weight;
  }
  void merge(const WeightedMean& other) { add(other.sum_, other.weight_); }
  double sum() const { return sum_; }
  double weight() const { return weight_; }
  /// NaN when nothing was added: undefined, not 0.
  double mean() const {
    return weight_ == 0 ? std::numeric_limits<double>::quiet_NaN() : sum_ / weight_;
  }

 private:
  double sum_ = 0, weight_ = 0;
};

}  // namespace lockstep::data
