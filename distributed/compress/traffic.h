#pragma once
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/compress/compressor.h"

namespace lockstep::distributed {

/// What compression did to the gradients of a bucket, or of all, at one rank, in all windows so
/// far.
struct Traffic {
  int64_t begin = 0, numel = 0;  ///< elements of the flat gradient
  int64_t sums = 0;              ///< or pushes
  int64_t elements = 0;          ///< encoded, in all of them
  CodeBytes codes;               ///< of this rank's gradients
  CodeBytes sum_codes;           ///< of sums that it owns
  int64_t framing = 0;           ///< headers of both, and what fills them up
  double wire = 0;  ///< bytes that came to this rank, or that it pushed: all there were
  double raw = 0;   ///< the same without a code: f32, all-reduced or pushed
  double encode_s = 0, decode_s = 0;
  int64_t saturated = 0, underflowed = 0;  ///< elements: beyond the code's range; became zero
  double residual_squares = 0;  ///< Σ of squares of what this rank has not sent yet, unscaled

  Traffic& operator+=(const Traffic& other);
  /// Elements' bytes over those of their codes alone, without scales, indices and headers.
  double nominal_ratio() const;
  /// Bytes without the code over all bytes with it. One rank alone: of what would travel.
  double effective_ratio() const;
  /// Bytes per second at which encoding and decoding take as long as the bytes saved would have; a
  /// faster network is better off without the code. 0: it saves nothing.
  double break_even() const;
  double residual_norm() const { return std::sqrt(residual_squares); }

 private:
  double elements_bytes() const { return 4.0 * static_cast<double>(elements); }
};

struct CompressionReport {
  std::string spec;              ///< empty: nothing is compressed
  std::vector<Traffic> buckets;  ///< by place
  Traffic total() const;
};

/// Adds the seconds of its life to a count.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace lockstep::distributed
