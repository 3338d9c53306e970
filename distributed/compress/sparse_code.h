#pragma once
#include "core/tensor.h"
#include "distributed/compress/sparse_block.h"

namespace lockstep::distributed {

/// What a code sends of a range: room from the allocator, filled in the order of positions.
class Chosen {
 public:
  Chosen(int64_t room, int64_t pieces);

  std::span<int32_t> positions() const { return {positions_, static_cast<size_t>(count())}; }
  /// Unscaled, where there is a residual: x / scale.
  std::span<float> values() const { return {values_, static_cast<size_t>(count())}; }
  /// Room for the next `count`, whose positions count from the piece's beginning.
  struct Room {
    std::span<int32_t> positions;
    std::span<float> values;
  };
  Room next(int64_t count) const;
  /// Ends a piece that begins at `first`: `count` of the room are its elements.
  void end_piece(int64_t first, int64_t count);

  int64_t pieces() const { return pieces_; }
  /// Where the elements of piece p end among all.
  int64_t end(int64_t p) const { return p < 0 ? 0 : ends_[p]; }
  int64_t count() const { return end(pieces_ - 1); }

 private:
  Tensor memory_positions_, memory_values_, memory_ends_;
  int32_t* positions_;
  float* values_;
  int64_t* ends_;
  int64_t pieces_ = 0;
};

/// A code that sends some elements with their positions. Sums over ranks have a code of their own
/// that loses nothing: what is not zero, in f32, with positions, or all where that is less.
///
/// CONTRACT: whole pieces are ranked, then cut by owner, so that what is sent of a gradient does
/// not depend on the way it goes.
class SparseCode : public Compressor {
 public:
  explicit SparseCode(SparseBlock block) : block_(block) {}

  int64_t max_bytes(const Pieces& pieces) const override;
  Encoded encode(const ToEncode& in, std::span<std::byte> code) const override;
  void decode_add(std::span<const std::byte> code, const Pieces& pieces,
                  std::span<const float> amplitudes, std::span<float> out) const override;
  Encoded encode_parts(const ToEncode& in, std::span<Part> parts,
                       std::span<std::byte> code) const override;
  int64_t max_part_bytes(const Pieces& whole, const Part& part) const override;
  int64_t max_sum_bytes(const Pieces& part, int ranks) const override;
  Encoded encode_sum(const ToEncode& in, std::span<std::byte> code) const override;
  void decode_sum(std::span<const std::byte> code, const Pieces& part,
                  std::span<const float> amplitudes, std::span<float> out) const override;
  bool exact_sums() const override { return true; }
  double predicted_bytes(const Pieces& pieces) const override;
  double predicted_sum_bytes(const Pieces& part, int ranks) const override;

 protected:
  /// The most that are chosen of a piece of n elements; exactly so many where fixed_size().
  virtual int64_t most_of(int64_t n, int64_t window) const = 0;
  /// About how many that will be, once warmed up.
  virtual double expected_of(int64_t n) const = 0;
  /// Chooses from x, or from x / scale where there is a residual: makes in.next of it first, and
  /// leaves there what was chosen, too. What is not finite is to be among it.
  virtual Chosen choose(const ToEncode& in) const = 0;
  /// After what was chosen has been sent.
  virtual void sent(const ToEncode&, const Chosen&) const {}

 private:
  // What all parts of a code are made of.
  struct Ready {
    Chosen chosen;  // values as readers will see them
    Tensor steps;
    Encoded encoded;
  };
  Ready prepare(const ToEncode& in) const;
  // Of [begin, begin + what the ends say) of the range, where `piece` begins or goes on.
  CodeBytes write(const Ready& ready, std::span<const int64_t> ends, int64_t begin, int64_t piece,
                  int64_t room, std::span<std::byte> code) const;

  SparseBlock block_;
};

}  // namespace lockstep::distributed
