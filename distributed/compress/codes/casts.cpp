// Two bytes an element, added on the wire (Micikevicius et al. 2018, arXiv:1710.03740, for
// gradients; mixed precision's own scale is the loss scaler's). Ranks that share a power of two may
// add their codes: it is chosen by the largest magnitude of all ranks' gradients, times the ranks,
// so that no sum overflows and the smallest lose as little as they can. bf16 has the exponents of
// f32 and needs none. Moves 2 bytes an element, and with a scale one number for each piece.
#include "distributed/compress/codes/parts.h"

#include <algorithm>

namespace lockstep::distributed {
namespace {

class Cast : public Compressor {
 public:
  Scope scope() const override { return scope_; }
  int64_t max_bytes(const Pieces& pieces) const override { return 2 * pieces.numel(); }

  Encoded encode(const ToEncode& in, std::span<std::byte> code) const override {
    const int64_t bytes = max_bytes(in.pieces);
    Encoded made{.bytes = {.payload = bytes}};
    each_piece(in.pieces, [&](size_t piece, int64_t begin, int64_t end) {
      const kernel::Narrowed narrowed = kernel::encode_narrow(
          code.data() + 2 * begin, dtype_, fed_back(in, begin, end), power(in.amplitudes, piece));
      made.finite &= narrowed.finite;
      made.saturated += narrowed.beyond;
    });
    // Without a scale an f16 overflows as on an f16 wire: the step is skipped, a scaler backs off.
    if (dtype_ == DType::f16 && !scaled_ && made.saturated > 0) made.finite = false;
    if (!made.finite) std::memset(code.data(), 0, static_cast<size_t>(bytes));
    return made;
  }
  void decode_add(std::span<const std::byte> code, const Pieces& pieces,
                  std::span<const float> amplitudes, std::span<float> out) const override {
    expect_size(name_of(dtype_), code, max_bytes(pieces));
    expect_good(name_of(dtype_), all_finite(code));
    each_piece(pieces, [&](size_t piece, int64_t begin, int64_t end) {
      kernel::add_narrow(out.data() + begin, end - begin, code.data() + 2 * begin, dtype_,
                         1 / power(amplitudes, piece));
    });
  }

  bool shares_amplitudes() const override { return scaled_; }
  void amplitudes(const ToEncode& in, std::span<float> out) const override {
    each_piece(in.pieces, [&](size_t piece, int64_t begin, int64_t end) {
      out[piece] =
          static_cast<float>(in.ranks) * kernel::largest_magnitude(fed_back(in, begin, end));
    });
  }
  std::optional<DType> adds_as() const override { return dtype_; }

 protected:
  Cast(const Spec& spec, DType dtype, std::string_view scale)
      : dtype_(dtype),
        scaled_(spec.text("scale", scale, {"amplitude", "none"}) == "amplitude"),
        scope_(scope_of(spec, Scope::bucket)) {}

 private:
  // No rank writes what is not; a sum of codes that is not is known before it is decoded.
  bool all_finite(std::span<const std::byte> code) const {
    uint16_t largest = 0;
    for (size_t at = 0; at + 1 < code.size(); at += 2) {
      uint16_t bits;
      std::memcpy(&bits, code.data() + at, sizeof bits);
      largest = std::max(largest, static_cast<uint16_t>(bits & 0x7fff));
    }
    return largest < (dtype_ == DType::f16 ? 0x7c00 : 0x7f80);
  }
  float power(std::span<const float> amplitudes, size_t piece) const {
    if (!scaled_) return 1;
    return kernel::power_below(amplitudes[piece], dtype_ == DType::f16 ? 0x1p15f : 0x1p126f);
  }

  DType dtype_;
  bool scaled_;
  Scope scope_;
};

class Fp16 final : public Cast {
 public:
  explicit Fp16(const Spec& spec) : Cast(spec, DType::f16, "amplitude") {}
};
class Bf16 final : public Cast {
 public:
  explicit Bf16(const Spec& spec) : Cast(spec, DType::bf16, "none") {}
};

const Register<Compressor, Fp16> fp16{
    "fp16",
    "two bytes an element, 11 bits precise, added on the wire",
    {{"scale",
      "amplitude: a power of two that all ranks share, by which no sum overflows; none: as --wire "
      "fp16 (amplitude)"},
     {"scope", "what has a scale of its own: tensor or bucket (bucket)"}}};
const Register<Compressor, Bf16> bf16{
    "bf16",
    "two bytes an element, 8 bits precise, added on the wire",
    {{"scale", "amplitude as of fp16, which the exponents of bf16 do not need, or none (none)"},
     {"scope", "what has a scale of its own: tensor or bucket (bucket)"}}};

}  // namespace
}  // namespace lockstep::distributed
