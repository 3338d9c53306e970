#pragma once
#include "core/kernels/quantize.h"
#include "distributed/compress/compressor.h"

namespace lockstep::distributed {

/// Few bits an element on a grid of each block of elements, whatever parameter they belong to: the
/// scales of all blocks, then the codes. What int8 and qsgd are.
class BlockCompressor : public Compressor {
 public:
  int64_t max_bytes(const Pieces& pieces) const override;
  Encoded encode(const ToEncode& in, std::span<std::byte> code) const override;
  void decode_add(std::span<const std::byte> code, const Pieces& pieces,
                  std::span<const float> amplitudes, std::span<float> out) const override;

 protected:
  enum class Rounding { nearest, stochastic };
  BlockCompressor(std::string_view name, const kernel::BlockCode& code, Rounding rounding)
      : name_(name), code_(code), rounding_(rounding) {}
  /// A size of blocks from a spec; UsageError where it is none.
  static int64_t block_of(const Spec& spec, int64_t fallback);
  const kernel::BlockCode& code() const { return code_; }

 private:
  std::string_view name_;
  kernel::BlockCode code_;
  Rounding rounding_;
};

}  // namespace lockstep::distributed
