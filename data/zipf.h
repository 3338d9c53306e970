#pragma once
#include <cstdint>
#include <vector>

namespace lockstep::data {

/// Zipf's law over places 0 … n - 1: place k has probability (k + 1)^-s / Σ. Draws invert the
/// distribution function at a uniform 64-bit number: exactly for the first 4,096 places; beyond
/// them k^-s is taken as ∫ x^-s dx over [k - 1/2, k + 1/2], which is right to one part in 10^7. So
/// there is no table of n numbers, and a draw costs some ten nanoseconds whatever n.
class Zipf {
 public:
  /// n >= 1, 0 <= exponent <= 4; 0 is the uniform distribution.
  Zipf(int64_t n, double exponent);
  int64_t operator()(uint64_t uniform) const;
  double probability(int64_t place) const;

 private:
  double tail_integral(double x) const;  // ∫ from the head's end to x, of x^-s
  int64_t draw_tail(double u) const;

  int64_t n_, head_;
  double exponent_, total_, begin_, tail_ = 0;  // the tail is ranks [begin_, n + 1/2)
  std::vector<uint64_t> upto_;                  // distribution function · 2^64 of the head
  std::vector<int32_t> guide_;                  // the first place for each of the upper bits
};

}  // namespace lockstep::data
