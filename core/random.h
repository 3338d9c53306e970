#pragma once
#include <array>
#include <cstdint>

namespace lockstep {

/// Named streams: numbers of one never meet those of another, whatever the seed.
enum class RandomStream : uint32_t {
  initialisation = 1,       ///< same on all ranks
  data_order = 2,           ///< same on all ranks
  dropout = 3,              ///< keyed by sample, so that any split of a batch agrees
  stochastic_rounding = 4,  ///< per rank
  random_k = 5,             ///< same on all ranks
  synthetic = 6,            ///< generated data
  sampling = 7,             ///< text generation
  tests = 8,
  modelled_time = 9,  ///< durations on the virtual cluster, keyed by rank
  clicks = 10,        ///< generated clicks, keyed by table; their teacher
  negatives = 11,     ///< items a user did not choose, same on all ranks
  low_rank = 12,      ///< where power iterations start, keyed by parameter, same on all ranks
  images = 13,        ///< generated images
};

/// Philox4x32-10 (Salmon et al., SC'11): four 32-bit words, a pure function of counter and key.
constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

/// A random sequence addressed by position: a pure function of (seed, stream, key, position).
/// `key` tells apart users of one stream (parameter number, sample number, epoch).
class Random {
 public:
  constexpr Random(uint64_t seed, RandomStream stream, uint32_t key = 0)
      : seed_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        stream_(static_cast<uint32_t>(stream)),
        key_(key) {}

  /// Words 4*block .. 4*block+3 of the sequence.
  constexpr std::array<uint32_t, 4> block(uint64_t block) const {
    return philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), key_, stream_},
                  seed_);
  }
  constexpr uint32_t word(uint64_t i) const { return block(i / 4)[i % 4]; }
  /// In [0, 1), 24 bits.
  constexpr float uniform(uint64_t i) const { return static_cast<float>(word(i) >> 8) * 0x1p-24f; }
  /// In [0, 1), 53 bits, from words 2i and 2i+1.
  double uniform53(uint64_t i) const;
  /// Standard normal (Box-Muller on words 2i and 2i+1, in double).
  double normal(uint64_t i) const;
  /// In [0, n), without bias to speak of (64-bit multiply-shift on words 2i and 2i+1).
  uint64_t below(uint64_t n, uint64_t i) const;

 private:
  std::array<uint32_t, 2> seed_;
  uint32_t stream_;
  uint32_t key_;
};

/// A pseudo-random permutation of [0, n), evaluated at one place: Feistel rounds over Philox with
/// cycle walking. No memory, and any position can be asked for, so resuming is trivial.
class Permutation {
 public:
  Permutation(uint64_t n, const Random& random);
  uint64_t operator()(uint64_t i) const;

 private:
  uint64_t n_;
  int half_bits_;
  Random random_;
};

}  // namespace lockstep
