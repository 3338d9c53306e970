// One element of every so many, drawn with a seed that all ranks share (Stich et al. 2018,
// arXiv:1809.07599): no positions travel, and codes are arrays of numbers that can be added. The
// sequence of random numbers is cut into stretches of round(1 / ratio), and one place is drawn of
// each, so a part of a range has the elements that the whole has there. Without error feedback
// values are multiplied by the stretch's length: what is decoded is unbiased.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/kernels/feedback.h"
#include "core/random.h"
#include "core/spec.h"
#include "distributed/compress/bad_code.h"
#include "distributed/compress/compressor.h"

namespace lockstep::distributed {
namespace {

constexpr float kMost = std::numeric_limits<float>::max();

// As numbers of a dtype; what is finite stays so.
void put(DType dtype, std::byte* to, float v) {
  v = std::clamp(v, -kMost, kMost);
  if (dtype == DType::f32) {
    std::memcpy(to, &v, sizeof v);
    return;
  }
  uint16_t bits = dtype == DType::f16 ? half_bits(v) : bfloat16_bits(v);
  const auto infinity = static_cast<uint16_t>(dtype == DType::f16 ? 0x7c00 : 0x7f80);
  if ((bits & 0x7fff) == infinity) --bits;
  std::memcpy(to, &bits, sizeof bits);
}
float get(DType dtype, const std::byte* from) {
  if (dtype == DType::f32) {
    float v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return dtype == DType::f16 ? half_value(bits) : bfloat16_value(bits);
}

class RandomK final : public Compressor {
 public:
  explicit RandomK(const Spec& spec)
      : stretch_(static_cast<uint64_t>(
            std::llround(1 / spec.number("ratio", 0.01, {.min = 1e-9, .max = 1})))) {
    const std::string values = spec.text("values", "fp32", {"fp32", "fp16", "bf16"});
    dtype_ = values == "fp16" ? DType::f16 : values == "bf16" ? DType::bf16 : DType::f32;
  }

  std::optional<DType> adds_as() const override { return dtype_; }
  // As many stretches as n elements can touch; what is drawn outside of them is a zero.
  int64_t addends(const Pieces& pieces) const override {
    const int64_t n = pieces.numel(), stretch = static_cast<int64_t>(stretch_);
    return n == 0 ? 0 : (n - 1) / stretch + 1 + (stretch > 1 ? 1 : 0);
  }
  int64_t max_bytes(const Pieces& pieces) const override {
    return addends(pieces) * size_of(dtype_);
  }
  bool exact_sums() const override { return true; }  // in f32
  int64_t max_sum_bytes(const Pieces& part, int) const override {
    return addends(part) * size_of(DType::f32);
  }

  Encoded encode(const ToEncode& in, std::span<std::byte> code) const override {
    const bool bare = in.residual.empty();
    const float largest =
        bare ? kernel::largest_magnitude(in.values)
             : kernel::add_feedback(in.next, in.values, 1 / in.scale, in.residual) * in.scale;
    Encoded encoded = begin(in.pieces, dtype_, code);
    encoded.finite = std::isfinite(largest);
    if (!encoded.finite) return encoded;
    const auto stretch = static_cast<float>(stretch_);
    each(in.pieces, [&](int64_t slot, size_t i) {
      const float x = bare ? in.values[i] * stretch : in.next[i] * in.scale;
      std::byte* const to = code.data() + slot * size_of(dtype_);
      put(dtype_, to, x);
      const float seen = get(dtype_, to);
      if (!bare) in.next[i] = (x - seen) / in.scale;
      encoded.saturated += std::abs(x) > limit();
      encoded.underflowed += seen == 0 && x != 0;
    });
    return encoded;
  }

  Encoded encode_sum(const ToEncode& in, std::span<std::byte> code) const override {
    Encoded encoded = begin(in.pieces, DType::f32, code);
    encoded.finite = std::isfinite(kernel::largest_magnitude(in.values));
    if (encoded.finite)
      each(in.pieces, [&](int64_t slot, size_t i) {
        put(DType::f32, code.data() + slot * size_of(DType::f32), in.values[i]);
      });
    return encoded;
  }

  void decode_add(std::span<const std::byte> code, const Pieces& pieces, std::span<const float>,
                  std::span<float> out) const override {
    read_add(code, pieces, dtype_, out);
  }
  void decode_sum(std::span<const std::byte> code, const Pieces& part, std::span<const float>,
                  std::span<float> out) const override {
    read_add(code, part, DType::f32, out);
  }

 private:
  // The largest that the dtype has.
  float limit() const {
    return dtype_ == DType::f16 ? 65504.0f : dtype_ == DType::bf16 ? bfloat16_value(0x7f7f) : kMost;
  }

  // f(slot, element) for all that are drawn, ascending; returns the slots in use.
  template <class F>
  void each(const Pieces& pieces, F f) const {
    if (pieces.numel() == 0) return;
    const uint64_t begin = pieces.position, end = begin + static_cast<uint64_t>(pieces.numel()),
                   first = begin / stretch_, last = (end - 1) / stretch_;
    const Random random(pieces.seed, RandomStream::random_k);
    std::array<uint32_t, 4> words{};
    for (uint64_t j = first; j <= last; ++j) {
      if (j == first || j % 4 == 0) words = random.block(j / 4);
      const uint64_t drawn = j * stretch_ + (words[j % 4] * stretch_ >> 32);
      if (begin <= drawn && drawn < end)
        f(static_cast<int64_t>(j - first), static_cast<size_t>(drawn - begin));
    }
  }

  Encoded begin(const Pieces& pieces, DType dtype, std::span<std::byte> code) const {
    const int64_t bytes = addends(pieces) * size_of(dtype);
    std::fill_n(code.begin(), bytes, std::byte{0});
    Encoded encoded;
    each(pieces, [&](int64_t, size_t) { encoded.bytes.payload += size_of(dtype); });
    encoded.bytes.padding = bytes - encoded.bytes.payload;
    return encoded;
  }

  void read_add(std::span<const std::byte> code, const Pieces& pieces, DType dtype,
                std::span<float> out) const {
    const int64_t slots = addends(pieces), size = size_of(dtype);
    if (pieces.numel() != static_cast<int64_t>(out.size()))
      throw BadCode("it is of another number of elements");
    if (static_cast<int64_t>(code.size()) != slots * size)
      throw BadCode("its length is not that of its elements");
    int64_t next = 0;
    const auto expect_zeros = [&](int64_t end) {
      for (; next < end; ++next)
        if (get(dtype, code.data() + next * size) != 0)
          throw BadCode("it has a value where none was drawn");
    };
    each(pieces, [&](int64_t slot, size_t i) {
      expect_zeros(slot);
      const float value = get(dtype, code.data() + slot * size);
      if (!std::isfinite(value)) throw BadCode("it has a value that is not finite");
      out[i] += value;
      next = slot + 1;
    });
    expect_zeros(slots);
  }

  uint64_t stretch_;
  DType dtype_;
};

const Register<Compressor, RandomK> registered{
    "randomk",
    "elements drawn by a shared seed: no positions travel, sums are made on the wire",
    {{"ratio", "how many are drawn: one of round(1 / ratio) (0.01)"},
     {"values", "fp32, fp16 or bf16 (fp32)"}}};

}  // namespace
}  // namespace lockstep::distributed
