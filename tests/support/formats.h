#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

/// Binary floating formats by their definition, in double and by search: what the fast conversions
/// are tested against. A code is sign, exponent and mantissa; 2^-bias · 2^exponent · 1.mantissa,
/// and subnormals below.
namespace lockstep::test {

class Format {
 public:
  enum class Top { ieee, finite };  ///< the topmost exponent: specials, or numbers but for one NaN
  Format(int exponent_bits, int mantissa_bits, Top top)
      : mantissa_bits_(mantissa_bits),
        bias_((1 << (exponent_bits - 1)) - 1),
        codes_(1 << (exponent_bits + mantissa_bits)),
        finite_(top == Top::ieee ? ((1 << exponent_bits) - 1) << mantissa_bits : codes_ - 1) {
    for (int code = 0; code <= finite_; ++code) magnitudes_.push_back(magnitude(code));
  }

  int codes() const { return 2 * codes_; }
  int sign() const { return codes_; }  ///< the bit
  int last_finite() const { return finite_ - 1; }
  double largest() const { return magnitudes_[static_cast<size_t>(finite_) - 1]; }

  double value(int code) const {
    const int rest = code & (codes_ - 1);
    const double v = rest < finite_                            ? magnitude(rest)
                     : rest == finite_ && finite_ < codes_ - 1 ? INFINITY
                                                               : NAN;
    return code & codes_ ? -v : v;
  }
  /// Code of the nearest value, ties to the even code; what would be rounded beyond the largest
  /// gives last_finite() + 1. Not for NaN.
  int nearest(double x) const {
    const double m = std::abs(x);
    const int sign = std::signbit(x) ? codes_ : 0;
    const auto above = std::upper_bound(magnitudes_.begin(), magnitudes_.end(), m);
    if (above == magnitudes_.end()) return sign | finite_;
    const int high = static_cast<int>(above - magnitudes_.begin()), low = high - 1;
    const double to_low = m - magnitudes_[low], to_high = magnitudes_[high] - m;
    if (to_low == to_high) return sign | (low % 2 == 0 ? low : high);
    return sign | (to_low < to_high ? low : high);
  }
  /// Codes themselves, and around the middle between any two neighbours (and beyond the largest)
  /// the float below, the middle, the float above; both signs.
  std::vector<float> borders() const {
    std::vector<float> all;
    for (int code = 0; code < finite_; ++code) {
      const float at = static_cast<float>(magnitudes_[code]);
      const float middle = static_cast<float>((magnitudes_[code] + magnitudes_[code + 1]) / 2);
      for (float x : {at, std::nextafter(middle, 0.0f), middle, std::nextafter(middle, INFINITY)})
        all.insert(all.end(), {x, -x});
    }
    return all;
  }

 private:
  double magnitude(int code) const {
    const int exponent = code >> mantissa_bits_, mantissa = code & ((1 << mantissa_bits_) - 1);
    return exponent == 0
               ? std::ldexp(mantissa, 1 - bias_ - mantissa_bits_)
               : std::ldexp(mantissa + (1 << mantissa_bits_), exponent - bias_ - mantissa_bits_);
  }

  int mantissa_bits_, bias_, codes_, finite_;
  std::vector<double> magnitudes_;  // of the finite codes, and what would come next
};

inline const Format& half_format() {
  static const Format f(5, 10, Format::Top::ieee);
  return f;
}
inline const Format& bfloat16_format() {
  static const Format f(8, 7, Format::Top::ieee);
  return f;
}
inline const Format& e4m3_format() {
  static const Format f(4, 3, Format::Top::finite);
  return f;
}
inline const Format& e5m2_format() {
  static const Format f(5, 2, Format::Top::ieee);
  return f;
}

}  // namespace lockstep::test
