// TernGrad (Wen et al. 2017, arXiv:1705.07878): minus, zero or plus the largest magnitude of each
// piece, at random so that the mean is the value itself. All ranks share the largest (section 3.3),
// so that a sum is a small integer times it, and owners send that exactly, in as few bits as
// `ranks` needs. Moves 1/4 byte an element, of sums of n ranks bits(2n) / 8, and one number for
// each piece.
#include "distributed/compress/codes/parts.h"

#include <algorithm>
#include <bit>

namespace lockstep::distributed {
namespace {

class TernGrad final : public Compressor {
 public:
  explicit TernGrad(const Spec& spec) : scope_(scope_of(spec, Scope::tensor)) {}

  Scope scope() const override { return scope_; }
  int64_t max_bytes(const Pieces& pieces) const override { return packed_bytes(pieces, 2); }

  Encoded encode(const ToEncode& in, std::span<std::byte> code) const override {
    Encoded made{.bytes = bytes_of(in.pieces, 2, max_bytes(in.pieces))};
    std::byte* at = code.data();
    each_piece(in.pieces, [&](size_t piece, int64_t begin, int64_t end) {
      const kernel::Draws draws = draws_of(in, begin);
      made.finite &= kernel::encode_steps(at, fed_back(in, begin, end),
                                          steps(in.amplitudes, piece, 1), &draws);
      at += kernel::packed_bytes(end - begin, 2);
    });
    if (!made.finite) encode_zeros(in.pieces, code);
    return made;
  }
  void decode_add(std::span<const std::byte> code, const Pieces& pieces,
                  std::span<const float> amplitudes, std::span<float> out) const override {
    expect_size("terngrad", code, max_bytes(pieces));
    const std::byte* at = code.data();
    each_piece(pieces, [&](size_t piece, int64_t begin, int64_t end) {
      expect_good("terngrad", kernel::add_steps(out.data() + begin, end - begin, at,
                                                steps(amplitudes, piece, 1)));
      at += kernel::packed_bytes(end - begin, 2);
    });
  }

  bool shares_amplitudes() const override { return true; }
  void amplitudes(const ToEncode& in, std::span<float> out) const override {
    each_piece(in.pieces, [&](size_t piece, int64_t begin, int64_t end) {
      const float largest = kernel::largest_magnitude(fed_back(in, begin, end));
      // 16 bits, not below: multiples of up to 256 are exact, and nothing is cut off.
      out[piece] =
          std::isfinite(largest) ? kernel::shorten(largest, 16, kernel::Shorten::up) : largest;
    });
  }

  bool exact_sums() const override { return true; }
  int64_t max_sum_bytes(const Pieces& part, int ranks) const override {
    return kHeader + packed_bytes(part, bits_of(ranks));
  }
  Encoded encode_sum(const ToEncode& in, std::span<std::byte> code) const override {
    const int bits = bits_of(in.ranks);
    Encoded made{.bytes = bytes_of(in.pieces, bits, max_sum_bytes(in.pieces, in.ranks))};
    const auto ranks = static_cast<uint16_t>(in.ranks);
    std::memcpy(code.data(), &ranks, kHeader);
    std::byte* at = code.data() + kHeader;
    each_piece(in.pieces, [&](size_t piece, int64_t begin, int64_t end) {
      const kernel::StepCode code_of = steps(in.amplitudes, piece, in.ranks);
      if (bits <= 8)
        made.finite &= kernel::encode_steps(at, fed_back(in, begin, end), code_of, nullptr);
      else
        made.finite &= encode_wide(at, in.values.subspan(begin, end - begin), code_of);
      at += kernel::packed_bytes(end - begin, bits);
    });
    return made;
  }
  void decode_sum(std::span<const std::byte> code, const Pieces& part,
                  std::span<const float> amplitudes, std::span<float> out) const override {
    uint16_t ranks = 0;
    expect_good("terngrad", code.size() >= kHeader);
    std::memcpy(&ranks, code.data(), kHeader);
    expect_good("terngrad", ranks >= 1 && ranks <= kMostRanks);
    expect_size("terngrad", code, max_sum_bytes(part, ranks));
    const int bits = bits_of(ranks);
    const std::byte* at = code.data() + kHeader;
    each_piece(part, [&](size_t piece, int64_t begin, int64_t end) {
      const kernel::StepCode code_of = steps(amplitudes, piece, ranks);
      expect_good("terngrad", bits <= 8
                                  ? kernel::add_steps(out.data() + begin, end - begin, at, code_of)
                                  : add_wide(out.subspan(begin, end - begin), at, code_of));
      at += kernel::packed_bytes(end - begin, bits);
    });
  }

 private:
  static constexpr int64_t kHeader = 2;  // how many ranks were added
  static constexpr int kMostRanks = 32767;

  // Of integers from -ranks to ranks.
  static int bits_of(int ranks) {
    check(ranks <= kMostRanks, "[distributed.compress] terngrad; expected up to {} ranks, got {}",
          kMostRanks, ranks);
    return ranks <= 127 ? std::bit_width(static_cast<unsigned>(2 * ranks)) : 16;
  }
  static kernel::StepCode steps(std::span<const float> amplitudes, size_t piece, int most) {
    const float step = std::isfinite(amplitudes[piece]) ? amplitudes[piece] : 0;
    return {.step = step, .inverse = step == 0 ? 0 : 1 / step, .bits = bits_of(most), .most = most};
  }
  static void encode_zeros(const Pieces& pieces, std::span<std::byte> code) {
    std::byte* at = code.data();
    each_piece(pieces, [&](size_t, int64_t begin, int64_t end) {
      const int64_t bytes = kernel::packed_bytes(end - begin, 2), last = (end - begin) % 4;
      std::memset(at, 0x55, static_cast<size_t>(bytes));
      at += bytes;
      if (last != 0) at[-1] = static_cast<std::byte>(0x55 >> (8 - 2 * last));
    });
  }

  // Sums of more ranks than a byte can count.
  static bool encode_wide(std::byte* at, std::span<const float> sum, const kernel::StepCode& code) {
    bool finite = true;
    for (size_t i = 0; i < sum.size(); ++i) {
      const float most = static_cast<float>(code.most);
      const float k = std::clamp(std::nearbyint(sum[i] * code.inverse), -most, most);
      finite &= std::isfinite(sum[i]);
      const auto u = static_cast<uint16_t>(std::isfinite(sum[i]) ? k + most : most);
      std::memcpy(at + 2 * i, &u, 2);
    }
    return finite;
  }
  static bool add_wide(std::span<float> out, const std::byte* at, const kernel::StepCode& code) {
    bool good = true;
    for (size_t i = 0; i < out.size(); ++i) {
      uint16_t u;
      std::memcpy(&u, at + 2 * i, 2);
      good &= u <= 2 * code.most;
      out[i] += static_cast<float>(u - code.most) * code.step;
    }
    return good;
  }

  Scope scope_;
};

const Register<Compressor, TernGrad> registered{
    "terngrad",
    "minus, zero or plus the largest magnitude, at random, unbiased; two bits each",
    {{"scope", "what has a largest magnitude of its own: tensor or bucket (tensor)"}}};

}  // namespace
}  // namespace lockstep::distributed
