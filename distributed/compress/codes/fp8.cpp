// One byte an element (Micikevicius et al. 2022, arXiv:2209.05433), with a power of two for every
// piece or block: the largest at which nothing is rounded beyond the format's largest. Eight-bit
// floats cannot be added on the wire: a sum is made in f32 and encoded again by its owner. As codes
// are decoded before they are added, ranks need no scale in common: each has its own, which loses
// less than that of the largest of all ranks and costs no collective (scale=amplitude is that, as
// where codes are added: Peng et al. 2023, arXiv:2310.18313, section 2.1). Sums have their owner's.
// Moves 1 byte an element, and one for each piece or block.
#include "distributed/compress/codes/parts.h"

namespace lockstep::distributed {
namespace {

class Fp8Code final : public Compressor {
 public:
  explicit Fp8Code(const Spec& spec)
      : format_(format_of(spec)),
        block_(spec.integer("block", 0, {.min = 0, .max = kernel::BlockCode::kMostBlock})),
        shared_(spec.text("scale", "own", {"own", "amplitude"}) == "amplitude"),
        scope_(scope_of(spec, Scope::tensor)) {
    check(!shared_ || block_ == 0,
          "[distributed.compress] '{}': blocks have powers of their own; expected scale=own or no "
          "block",
          spec.written());
    check(block_ % 8 == 0, "[distributed.compress] '{}': block; expected a multiple of 8, got {}",
          spec.written(), block_);
  }

  Scope scope() const override { return scope_; }
  int64_t max_bytes(const Pieces& pieces) const override { return powers(pieces) + pieces.numel(); }

  bool shares_amplitudes() const override { return shared_; }
  void amplitudes(const ToEncode& in, std::span<float> out) const override {
    each_piece(in.pieces, [&](size_t piece, int64_t begin, int64_t end) {
      out[piece] = kernel::largest_magnitude(fed_back(in, begin, end));
    });
  }

  Encoded encode_sum(const ToEncode& in, std::span<std::byte> code) const override {
    ToEncode own = in;
    own.amplitudes = {};
    return encode(own, code);
  }
  Encoded encode(const ToEncode& in, std::span<std::byte> code) const override {
    const int64_t before = powers(in.pieces);
    Encoded made{.bytes = {.payload = in.pieces.numel(), .scales = before}};
    each_part(in.pieces, [&](int64_t power, int64_t begin, int64_t end) {
      const kernel::Eighths eighths = kernel::encode_eighths(
          code.data() + power, code.data() + before + begin, fed_back(in, begin, end),
          {format_, block_, in.amplitudes.empty() ? -1 : in.amplitudes[power]});
      made.finite &= eighths.finite;
      made.underflowed += eighths.vanished;
    });
    if (!made.finite) std::memset(code.data() + before, 0, static_cast<size_t>(in.pieces.numel()));
    return made;
  }
  void decode_add(std::span<const std::byte> code, const Pieces& pieces,
                  std::span<const float> /*amplitudes*/, std::span<float> out) const override {
    expect_size("fp8", code, max_bytes(pieces));
    const int64_t before = powers(pieces);
    each_part(pieces, [&](int64_t power, int64_t begin, int64_t end) {
      expect_good("fp8", kernel::add_eighths(out.data() + begin, end - begin, code.data() + power,
                                             code.data() + before + begin, {format_, block_}));
    });
  }

 private:
  static kernel::Fp8 format_of(const Spec& spec) {
    const bool e4m3 = spec.flag("e4m3", false), e5m2 = spec.flag("e5m2", false);
    check(e4m3 + e5m2 + spec.has("format") <= 1,
          "[distributed.compress] '{}'; expected one format, e4m3 or e5m2", spec.written());
    check(!spec.has("e4m3") || e4m3 || spec.has("format") || e5m2,
          "[distributed.compress] '{}'; expected e5m2 instead of e4m3=off", spec.written());
    if (spec.has("format"))
      return spec.text("format", "", {"e4m3", "e5m2"}) == "e4m3" ? kernel::Fp8::e4m3
                                                                 : kernel::Fp8::e5m2;
    return e5m2 ? kernel::Fp8::e5m2 : kernel::Fp8::e4m3;
  }
  int64_t powers(const Pieces& pieces) const {
    return block_ == 0 ? static_cast<int64_t>(pieces.ends.size())
                       : kernel::EighthCode{format_, block_}.powers(pieces.numel());
  }
  // f(first power, begin, end) of pieces, or, where blocks have the powers, of all.
  template <class F>
  void each_part(const Pieces& pieces, F f) const {
    if (block_ != 0) return f(0, 0, pieces.numel());
    each_piece(pieces, [&](size_t piece, int64_t begin, int64_t end) {
      f(static_cast<int64_t>(piece), begin, end);
    });
  }

  kernel::Fp8 format_;
  int64_t block_;
  bool shared_;
  Scope scope_;
};

const Register<Compressor, Fp8Code> registered{
    "fp8",
    "one byte an element, a floating one, with a power of two for each tensor",
    {{"format", "e4m3: largest 448, 4 bits precise; e5m2: 57344, 3 bits (e4m3)"},
     {"e4m3", "short for format=e4m3"},
     {"e5m2", "short for format=e5m2"},
     {"scope", "what has a power of its own: tensor or bucket (tensor)"},
     {"scale", "own: of each rank; amplitude: by the largest of all ranks (own)"},
     {"block", "instead, blocks of so many elements have, a multiple of 8; 0: not (0)"}}};

}  // namespace
}  // namespace lockstep::distributed
