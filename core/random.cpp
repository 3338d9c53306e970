#include "core/random.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "core/check.h"

namespace lockstep {

double Random::uniform53(uint64_t i) const {
  const uint64_t bits = (uint64_t{word(2 * i)} << 32) | word(2 * i + 1);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

double Random::normal(uint64_t i) const {
  // Words 2i and 2i+1 as (0, 1] and [0, 1); 2^-33 keeps the logarithm finite.
  const double u = (static_cast<double>(word(2 * i)) + 0.5) * 0x1p-32;
  const double v = static_cast<double>(word(2 * i + 1)) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

uint64_t Random::below(uint64_t n, uint64_t i) const {
  const uint64_t bits = (uint64_t{word(2 * i)} << 32) | word(2 * i + 1);
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

// The domain is the least even-bit power of two >= n; values beyond n walk on to the next image,
// fewer than four times on average.
Permutation::Permutation(uint64_t n, const Random& random) : n_(n), random_(random) {
  check(n >= 1 && n <= (uint64_t{1} << 62), "[core.permutation] expected 1 <= n <= 2^62, got {}",
        n);
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(n - 1)) + 1) / 2);
}

uint64_t Permutation::operator()(uint64_t i) const {
  check(i < n_, "[core.permutation] position {} of {}", i, n_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = i >> half_bits_, right = i & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      // One Philox block for each (round, right half).
      const uint64_t mixed = left ^ (random_.block((round << 56) | right)[0] & mask);
      left = right;
      right = mixed;
    }
    i = (left << half_bits_) | right;
  } while (i >= n_);
  return i;
}

}  // namespace lockstep
