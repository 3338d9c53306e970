#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/dtype.h"
#include "core/registry.h"

namespace lockstep::distributed {

/// A range of the flat gradient, cut into the pieces that a code ranks or scales by themselves.
/// Equal on all ranks, or sent along.
struct Pieces {
  std::span<const int64_t> ends;  ///< ascending; the last is the number of elements
  int64_t window = 0;             ///< windows applied before this one: what warm-ups go by
  uint64_t seed = 0;              ///< of random numbers,
  uint64_t position = 0;          ///< whose element i has the word at position + i

  int64_t numel() const { return ends.empty() ? 0 : ends.back(); }
};
/// f(piece, begin, end) of each of them.
template <class F>
void each_piece(const Pieces& pieces, F f) {
  int64_t begin = 0;
  for (size_t piece = 0; piece < pieces.ends.size(); begin = pieces.ends[piece++])
    f(piece, begin, pieces.ends[piece]);
}

/// What a code is made of. x[i] = values[i] + scale · residual[i] is encoded, and what a receiver
/// will not see of it is kept: next[i] = (x[i] - decoded[i]) / scale. `scale` is a power of two, so
/// residuals are those of unscaled gradients, exactly; but for +ef:rescale, where residuals are
/// kept times a learning rate.
struct ToEncode {
  Pieces pieces;
  std::span<const float> values;    ///< times the loss scale, a sum over samples
  std::span<const float> residual;  ///< empty: no error feedback; x is values
  std::span<float> next;            ///< may be `residual` itself
  float scale = 1;                  ///< the loss scale: what values carry
  float kept_times = 1;  ///< +ef:rescale: the learning rate; scale is divided by it, loss_scale not
  std::span<const float> amplitudes;  ///< by piece, over all ranks; where they are shared
  uint32_t key = 0;  ///< of random numbers that are this rank's own: tells ranks and stages apart

  // Deep gradient compression only (Compressor::momentum).
  std::span<const float> velocity;  ///< unscaled, like residuals
  std::span<float> next_velocity;   ///< may be `velocity` itself

  double loss_scale() const { return double{scale} * double{kept_times}; }
  double weight = 1;  ///< samples in `values`: what clipping and thresholds go by
  int ranks = 1;      ///< that are added up; of amplitudes, too: what a sum needs room for
};

/// Where the bytes of a code go.
struct CodeBytes {
  int64_t payload = 0, indices = 0, scales = 0, padding = 0;
  int64_t total() const { return payload + indices + scales + padding; }
  CodeBytes& operator+=(const CodeBytes& more);
};
struct Encoded {
  CodeBytes bytes;
  /// Whether x was; else the code is that of zeros and nothing else is to be made of it: whoever
  /// encodes sees to it that the step is skipped on all ranks.
  bool finite = true;
  int64_t saturated = 0, underflowed = 0;  ///< elements beyond the code's range; that became zero
};

/// One rank's part of a range, where sums are made by owners.
struct Part {
  int64_t begin = 0, end = 0;  ///< elements of the range
  Pieces pieces;               ///< of the part alone: those of the range, cut
  int64_t code_begin = 0;      ///< where its code begins
  int64_t code_bytes = 0;      ///< room for it; after encoding: what it took
};

/// Makes few bytes of many numbers. Pure encoding: no communication, no state. Who owns residuals,
/// frames and collectives is the Exchange. One self-registering file in distributed/compress/codes
/// each; see docs/how-to/add-a-compressor.md.
///
/// CONTRACT: the same input gives the same bytes, whatever the threads. Every finite input has a
/// code: no elements, one, all zero, denormal, huge. What decodes a code throws BadCode for bytes
/// that no encoder makes and never writes outside `out`, whatever the bytes.
class Compressor {
 public:
  static constexpr std::string_view kKind = "compressor";
  enum class Scope { tensor, bucket };
  virtual ~Compressor() = default;

  /// What is ranked or scaled by itself: each parameter, or all that travels as one.
  virtual Scope scope() const { return Scope::bucket; }
  /// Room that a code takes at most; always as much where `fixed_size`.
  virtual int64_t max_bytes(const Pieces& pieces) const = 0;
  virtual bool fixed_size() const { return true; }

  /// Writes a code to the beginning of `code` (at least max_bytes).
  virtual Encoded encode(const ToEncode& in, std::span<std::byte> code) const = 0;
  /// out[i] += decoded[i]. `amplitudes` as they were when it was encoded.
  virtual void decode_add(std::span<const std::byte> code, const Pieces& pieces,
                          std::span<const float> amplitudes, std::span<float> out) const = 0;

  /// Whether codes go by amplitudes that are the largest of all ranks', and what this rank's are:
  /// out[p] of piece p of x. Not finite where x is not.
  virtual bool shares_amplitudes() const { return false; }
  virtual void amplitudes(const ToEncode&, std::span<float> /*out*/) const {}

  /// Where codes are arrays of numbers of this type which a collective may add: the sum's code is
  /// the sum of the codes. Not with error feedback, as nobody would keep what the sum loses.
  virtual std::optional<DType> adds_as() const { return std::nullopt; }
  /// How many such numbers.
  virtual int64_t addends(const Pieces& pieces) const { return pieces.numel(); }

  // Sums by owners: every rank sends each owner its part; owners add up in f32 and send the sum to
  // all.

  /// Encodes part by part. By default each by itself; one that ranks whole pieces does so before
  /// they are cut.
  virtual Encoded encode_parts(const ToEncode& in, std::span<Part> parts,
                               std::span<std::byte> code) const;
  virtual int64_t max_part_bytes(const Pieces& /*whole*/, const Part& part) const {
    return max_bytes(part.pieces);
  }
  /// Whether codes of parts and of sums always take all of their room.
  virtual bool fixed_parts() const { return fixed_size(); }
  /// The code of a part's sum over `ranks`: encode, unless sums have a code of their own. Shared
  /// amplitudes are those that the ranks' codes went by, of which the sum's may be `ranks` times as
  /// large.
  virtual int64_t max_sum_bytes(const Pieces& part, int /*ranks*/) const { return max_bytes(part); }
  virtual Encoded encode_sum(const ToEncode& in, std::span<std::byte> code) const {
    return encode(in, code);
  }
  virtual void decode_sum(std::span<const std::byte> code, const Pieces& part,
                          std::span<const float> amplitudes, std::span<float> out) const {
    decode_add(code, part, amplitudes, out);
  }
  /// Whether a sum's code loses nothing, so that both ways give the same bits and owners need no
  /// residual.
  virtual bool exact_sums() const { return false; }
  /// Whether only owners can make what is wanted of the sum (a majority vote).
  virtual bool needs_owners() const { return false; }

  /// What is expected to travel, for the choice between both ways.
  virtual double predicted_bytes(const Pieces& pieces) const {
    return static_cast<double>(max_bytes(pieces));
  }
  virtual double predicted_sum_bytes(const Pieces& part, int ranks) const {
    return static_cast<double>(max_sum_bytes(part, ranks));
  }

  /// Of momentum correction; 0: none, and no velocity is kept.
  virtual double momentum() const { return 0; }
  /// Whether residuals stay bounded. Not those of a code that may lose more than it was given: with
  /// error feedback they would grow from step to step, without end.
  virtual bool bounds_residuals() const { return true; }
};

/// The setting `scope` of a code.
Compressor::Scope scope_of(const Spec& spec, Compressor::Scope fallback);

}  // namespace lockstep::distributed
