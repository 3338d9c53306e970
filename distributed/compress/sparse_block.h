#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "distributed/compress/compressor.h"

namespace lockstep {
class Spec;
}

namespace lockstep::distributed {

/// Some elements of a range, in the order of their positions.
struct SparseElements {
  std::span<const int32_t> positions;  ///< strictly ascending, of the whole range
  std::span<const float> values;       ///< as many
  std::span<const float> steps;        ///< by piece of the block, see SparseBlock::step
  int64_t first = 0;                   ///< the position where the block begins
};

/// How chosen elements lie in memory: a count, steps, values, then where they belong, in whichever
/// of these takes the fewest bytes for so many of so many elements:
///
///     all       nothing: every element is there
///     words     32 bits each
///     gaps      16 bits for what lies between neighbours; 65535 means that, and further
///     bits      one for each element of the range
///
/// A reader knows the kind by both numbers, so none is sent. Gaps may take a few bytes more or
/// less: where a size must be known beforehand zeros fill the room of the most. All numbers are
/// little-endian, as all machines of a run are.
class SparseBlock {
 public:
  enum class Values : uint8_t { fp32, fp16, bf16, int8 };
  constexpr explicit SparseBlock(Values values) : values_(values) {}
  /// `values` of a spec: fp32 (default), fp16, bf16 or int8.
  explicit SparseBlock(const Spec& spec);

  /// Room for exactly `count` of n elements in so many pieces.
  int64_t bytes(int64_t n, int64_t pieces, int64_t count) const;
  /// Room for any number of elements up to `most`.
  int64_t most_bytes(int64_t n, int64_t pieces, int64_t most) const;

  /// What a piece's values are multiples of: 0 for a block of fp32 or bf16, which have none; a
  /// power of two for fp16, so that all but the very small have their 11 bits; the largest
  /// magnitude / 127 for int8. `largest` is finite.
  float step(float largest) const;
  /// Whether readers see finite values as they are.
  bool exact() const { return values_ == Values::fp32; }
  /// Makes values of a piece what a reader will see of them; lost[i] is what is taken away, where
  /// there is room for it.
  void round(std::span<float> values, float step, std::span<float> lost) const;

  /// Writes a block over pieces which end at `ends`, counted from elements.first. Pads to `room`
  /// bytes; 0: not at all.
  CodeBytes write(const SparseElements& elements, std::span<const int64_t> ends, int64_t room,
                  std::span<std::byte> code) const;
  /// out[position] += value for each element. BadCode for what no encoder writes.
  void read_add(std::span<const std::byte> code, std::span<const int64_t> ends,
                std::span<float> out) const;

 private:
  int64_t value_bytes() const;
  bool has_steps() const { return values_ == Values::fp16 || values_ == Values::int8; }
  int64_t head(int64_t pieces, int64_t count) const;
  template <class Value>
  void read_values(std::span<const std::byte> code, std::span<const int64_t> ends,
                   std::span<float> out, int64_t count) const;

  Values values_;
};

}  // namespace lockstep::distributed
