#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "distributed/compress/bad_code.h"
#include "distributed/compress/compress_spec.h"
#include "distributed/compress/compressor.h"

/// One code at a time, without ranks: what it makes of numbers and what comes out again.
namespace lockstep::distributed {

using Floats = std::vector<float>;

/// A rank's encoder, with residuals as the exchange keeps them.
struct Coder {
  explicit Coder(const std::string& spec) : compressor(make_compressor(spec)) {}

  /// Encodes `values` as pieces that end at `ends` (none: as one).
  Encoded encode(const Floats& values, std::vector<int64_t> ends_of = {}) {
    ends = ends_of.empty() ? std::vector<int64_t>{static_cast<int64_t>(values.size())}
                           : std::move(ends_of);
    if (feedback && residual.empty()) residual.assign(values.size(), 0);
    ToEncode in = task(values);
    if (compressor->shares_amplitudes() && !fixed_amplitudes) {
      amplitudes.assign(ends.size(), 0);
      compressor->amplitudes(in, amplitudes);
    }
    in.amplitudes = amplitudes;
    code.assign(static_cast<size_t>(compressor->max_bytes(in.pieces)), std::byte{0xa5});
    const Encoded made = compressor->encode(in, code);
    EXPECT_LE(made.bytes.total(), static_cast<int64_t>(code.size()));
    if (compressor->fixed_size()) {
      EXPECT_EQ(made.bytes.total(), static_cast<int64_t>(code.size()));
    }
    code.resize(static_cast<size_t>(made.bytes.total()));
    return made;
  }
  ToEncode task(const Floats& values) {
    return {.pieces = pieces(),
            .values = values,
            .residual = residual,
            .next = residual,
            .scale = scale,
            .key = key,
            .ranks = ranks};
  }
  Pieces pieces() const { return {.ends = ends, .seed = seed, .position = position}; }
  Floats decode() const {
    Floats out(static_cast<size_t>(ends.back()));
    compressor->decode_add(code, pieces(), amplitudes, out);
    return out;
  }
  /// There and back.
  Floats through(const Floats& values, std::vector<int64_t> ends_of = {}) {
    EXPECT_TRUE(encode(values, std::move(ends_of)).finite);
    return decode();
  }

  std::unique_ptr<Compressor> compressor;
  bool feedback = false, fixed_amplitudes = false;
  float scale = 1;
  uint64_t seed = 1, position = 0;
  uint32_t key = 1;
  int ranks = 1;
  std::vector<int64_t> ends;
  std::vector<std::byte> code;
  Floats residual, amplitudes;
};

inline Floats normal_numbers(int64_t n, uint32_t key, double sd = 1) {
  const Random random(77, RandomStream::tests, key);
  Floats x;
  for (int64_t i = 0; i < n; ++i)
    x.push_back(static_cast<float>(sd * random.normal(static_cast<uint64_t>(i))));
  return x;
}

}  // namespace lockstep::distributed
