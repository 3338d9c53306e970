// The sign of each element and the mean magnitude of each piece (Seide et al. 2014; scaled signs
// with error feedback: Karimireddy et al. 2019, arXiv:1901.09847). An element that is zero goes by
// its sign bit: 0 is sent as plus, and what that adds is in the residual.
// With `vote` (Bernstein et al. 2019, arXiv:1810.05291) all ranks' signs weigh the same, the
// largest of their mean magnitudes, and only the majority is sent back: minus, plus, or zero for a
// tie, with the mean magnitude of the sums that are not zero. A rank whose piece is all zero does
// not vote. Moves 1/8 byte an element and 4 for each piece; a vote's result 1/4 byte an element.
#include "distributed/compress/codes/parts.h"

namespace lockstep::distributed {
namespace {

// Scales have 16 bits, so that sums of up to 256 of them are exact.
float scale_of(double sum, int64_t count) {
  return count == 0 ? 0
                    : kernel::shorten(static_cast<float>(sum / static_cast<double>(count)), 16,
                                      kernel::Shorten::nearest);
}

class Sign final : public Compressor {
 public:
  explicit Sign(const Spec& spec)
      : vote_(spec.flag("vote", false)), scope_(scope_of(spec, Scope::tensor)) {}

  Scope scope() const override { return scope_; }
  int64_t max_bytes(const Pieces& pieces) const override { return bytes(pieces, kSignBits); }

  Encoded encode(const ToEncode& in, std::span<std::byte> code) const override {
    return encode_pieces(
        in, code, kSignBits, [&](size_t piece, const kernel::FedBack& x, std::byte* bits) {
          float scale = 0;
          if (vote_) {
            scale = kernel::largest_magnitude(x) == 0 ? 0 : vote_of(in.amplitudes, piece);
          } else {
            const kernel::Magnitudes magnitudes = kernel::sum_magnitudes(x);
            if (std::isfinite(magnitudes.largest)) scale = scale_of(magnitudes.sum, x.numel);
          }
          put_float(code, piece, scale);
          return kernel::encode_signs(bits, x, scale);
        });
  }
  void decode_add(std::span<const std::byte> code, const Pieces& pieces,
                  std::span<const float> /*amplitudes*/, std::span<float> out) const override {
    decode_pieces(code, pieces, kSignBits,
                  [&](int64_t begin, int64_t end, float scale, const std::byte* bits) {
                    return kernel::add_signs(out.data() + begin, end - begin, bits, scale);
                  });
  }

  bool shares_amplitudes() const override { return vote_; }
  void amplitudes(const ToEncode& in, std::span<float> out) const override {
    each_piece(in.pieces, [&](size_t piece, int64_t begin, int64_t end) {
      const kernel::Magnitudes magnitudes = kernel::sum_magnitudes(fed_back(in, begin, end));
      out[piece] = std::isfinite(magnitudes.largest) ? scale_of(magnitudes.sum, end - begin)
                                                     : magnitudes.largest;
    });
  }

  bool needs_owners() const override { return vote_; }
  int64_t max_sum_bytes(const Pieces& part, int /*ranks*/) const override {
    return bytes(part, vote_ ? kVoteBits : kSignBits);
  }
  Encoded encode_sum(const ToEncode& in, std::span<std::byte> code) const override {
    if (!vote_) return encode(in, code);
    return encode_pieces(
        in, code, kVoteBits, [&](size_t piece, const kernel::FedBack& x, std::byte* bits) {
          const kernel::Magnitudes magnitudes = kernel::sum_magnitudes(x);
          const float vote = vote_of(in.amplitudes, piece);
          const float scale = std::isfinite(magnitudes.largest)
                                  ? scale_of(magnitudes.sum, x.numel - magnitudes.zeros)
                                  : 0;
          put_float(code, piece, scale);
          // Without feedback a sum is a multiple of the vote; with it, half a vote decides.
          return kernel::encode_steps(bits, x, result(scale, vote == 0 ? 0 : 1 / vote), nullptr);
        });
  }
  void decode_sum(std::span<const std::byte> code, const Pieces& part,
                  std::span<const float> amplitudes, std::span<float> out) const override {
    if (!vote_) return decode_add(code, part, amplitudes, out);
    decode_pieces(
        code, part, kVoteBits, [&](int64_t begin, int64_t end, float scale, const std::byte* bits) {
          return kernel::add_steps(out.data() + begin, end - begin, bits, result(scale, 1));
        });
  }

 private:
  static constexpr int kSignBits = 1, kVoteBits = 2;
  static int64_t bytes(const Pieces& pieces, int bits) {
    return 4 * static_cast<int64_t>(pieces.ends.size()) + packed_bytes(pieces, bits);
  }
  static float vote_of(std::span<const float> amplitudes, size_t piece) {
    return std::isfinite(amplitudes[piece]) ? amplitudes[piece] : 0;
  }
  static kernel::StepCode result(float scale, float inverse) {
    return {.step = scale, .inverse = inverse, .bits = kVoteBits, .most = 1};
  }

  // encode(piece, x, where its bits go), which says whether x is finite.
  template <class Encode>
  static Encoded encode_pieces(const ToEncode& in, std::span<std::byte> code, int bits,
                               Encode encode) {
    const int64_t total = bytes(in.pieces, bits);
    Encoded made{.bytes = bytes_of(in.pieces, bits, total)};
    std::byte* at = code.data() + 4 * in.pieces.ends.size();
    each_piece(in.pieces, [&](size_t piece, int64_t begin, int64_t end) {
      made.finite &= encode(piece, fed_back(in, begin, end), at);
      at += kernel::packed_bytes(end - begin, bits);
    });
    // Scales of zero: whatever the signs.
    if (!made.finite) std::memset(code.data(), 0, 4 * in.pieces.ends.size());
    return made;
  }
  template <class Decode>
  static void decode_pieces(std::span<const std::byte> code, const Pieces& pieces, int bits,
                            Decode decode) {
    expect_size("sign", code, bytes(pieces, bits));
    const std::byte* at = code.data() + 4 * pieces.ends.size();
    each_piece(pieces, [&](size_t piece, int64_t begin, int64_t end) {
      expect_good("sign", decode(begin, end, scale_at("sign", code, piece), at));
      at += kernel::packed_bytes(end - begin, bits);
    });
  }

  bool vote_;
  Scope scope_;
};

const Register<Compressor, Sign> registered{
    "sign",
    "the sign of each element and a mean magnitude; a bit each",
    {{"vote", "all ranks' signs weigh the same, the majority counts, a tie is zero (off)"},
     {"scope", "what has a magnitude of its own: tensor or bucket (tensor)"}}};

}  // namespace
}  // namespace lockstep::distributed
