// What a peer sends goes to the decoders of a code or of a frame around one; what the bytes mean as
// floats goes to its encoders, whose codes must be decoded. The first bytes of an input choose:
//   0     the code, of all that are registered and some settings more
//   1     what is done
//   2, 3  the number of elements
//   4     the number of pieces
//   5     where the random numbers begin
//   6     the size of shared amplitudes; the loss scale, and whether there is a residual
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "core/registry.h"
#include "core/spec.h"
#include "distributed/compress/bad_code.h"
#include "distributed/compress/compressor.h"
#include "distributed/compress/frame.h"

namespace lockstep::distributed {
namespace {

struct Code {
  std::string spec;
  std::unique_ptr<Compressor> compressor;
};

std::vector<Code> make_codes() {
  std::vector<std::string> specs = {
      "bf16:scale=amplitude",
      "fp16:scale=none",
      "fp16:scope=tensor",
      "fp8:e5m2",
      "fp8:block=64",
      "int8:mode=minmax,block=64",
      "int8:bits=3",
      "int8:bits=2",
      "qsgd:bits=8,norm=l2",
      "qsgd:bits=3,block=8",
      "qsgd:bits=1",
      "sign:vote",
      "sign:scope=bucket",
      "topk:ratio=0.02",
      "topk:ratio=0.3,values=fp16",
      "topk:ratio=0.3,values=bf16",
      "topk:ratio=0.6,values=int8",
      "topk:ratio=1",
      "topk:ratio=0.1,select=sampled",
      "topk:ratio=0.2,momentum=0.9,clip=1,warmup=5,dense_below=9",
      "threshold:value=0.5",
      "threshold:value=0,values=int8",
      "randomk:ratio=0.2",
      "randomk:ratio=1,values=fp16",
      "randomk:ratio=0.5,values=bf16",
  };
  for (const auto& entry : Registry<Compressor>::instance().entries()) specs.push_back(entry.name);
  std::vector<Code> codes;
  for (const std::string& spec : specs)
    codes.push_back({spec, Registry<Compressor>::instance().make(spec)});
  return codes;
}
const std::vector<Code>& all_codes() {
  static const std::vector<Code> codes = make_codes();
  return codes;
}

void expect(bool ok, const std::string& spec, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "%s: %s\n", spec.c_str(), what);
  std::abort();
}
void expect_finite(std::span<const float> x, const std::string& spec) {
  for (float v : x) expect(std::isfinite(v), spec, "a number that is not finite came out");
}

// Memory of exactly so many elements, so that the sanitizer sees one that is beyond them.
template <class T>
struct Exactly {
  explicit Exactly(size_t n) : memory(new T[n]()), span(memory.get(), n) {}
  explicit Exactly(std::span<const T> from) : Exactly(from.size()) {
    if (!from.empty()) std::memcpy(memory.get(), from.data(), from.size_bytes());
  }
  std::unique_ptr<T[]> memory;
  std::span<T> span;
};

class Input {
 public:
  static constexpr size_t kHead = 7;
  explicit Input(std::span<const std::byte> bytes)
      : head_{}, rest_(bytes.subspan(std::min(bytes.size(), kHead))) {
    std::memcpy(head_, bytes.data(), std::min(bytes.size(), kHead));
    const unsigned size = head_[2] | head_[3] << 8;
    const int64_t n = size < 0xf800 ? size % 400 : 64 * (size - 0xf800);  // seldom large
    const int64_t pieces = std::min<int64_t>(n, 1 + head_[4] % 4);
    for (int64_t p = 1; p <= pieces; ++p) ends_.push_back(n * p / pieces);
    amplitudes_.resize(ends_.size());
    for (size_t p = 0; p < ends_.size(); ++p)
      amplitudes_[p] = std::ldexp(1.0f + static_cast<float>(p) / 8, head_[6] - 130);
  }
  const Code& code() const { return all_codes()[head_[0] % all_codes().size()]; }
  int action() const { return head_[1] % 5; }
  float scale() const { return std::ldexp(1.0f, head_[6] % 32); }
  bool feedback() const { return head_[6] % 64 >= 32; }
  std::span<const std::byte> rest() const { return rest_; }
  Pieces pieces() const {
    return {.ends = ends_, .window = head_[5], .seed = 7, .position = head_[5]};
  }
  std::span<const float> amplitudes() const {
    return code().compressor->shares_amplitudes() ? amplitudes_ : std::span<const float>();
  }
  // As many as there are elements, over and over.
  Exactly<float> values() const {
    Exactly<float> x(static_cast<size_t>(pieces().numel()));
    const size_t have = rest_.size() / 4;
    for (size_t i = 0; have > 0 && i < x.span.size(); ++i)
      std::memcpy(&x.span[i], rest_.data() + 4 * (i % have), 4);
    return x;
  }

 private:
  unsigned char head_[kHead];
  std::span<const std::byte> rest_;
  std::vector<int64_t> ends_;
  std::vector<float> amplitudes_;
};

enum class Kind { code, sum };

void decode(const Input& input, std::span<const std::byte> bytes, Kind kind) {
  const auto& [spec, code] = input.code();
  const Exactly<std::byte> exact(bytes);
  const Exactly<float> out(static_cast<size_t>(input.pieces().numel()));
  try {
    if (kind == Kind::code)
      code->decode_add(exact.span, input.pieces(), input.amplitudes(), out.span);
    else
      code->decode_sum(exact.span, input.pieces(), input.amplitudes(), out.span);
  } catch (const BadCode&) {
    return;
  }
  // Numbers that a collective may add have all bits of their type; who adds looks at the sum.
  if (!code->adds_as()) expect_finite(out.span, spec);
}

void read(const Input& input) {
  const Exactly<std::byte> exact(input.rest());
  try {
    const Frame frame =
        read_frame(exact.span, {.code = code_id(input.code().spec),
                                .amplitudes = static_cast<uint32_t>(input.amplitudes().size()),
                                .numel = static_cast<uint64_t>(input.pieces().numel()),
                                .seed = input.pieces().seed,
                                .position = input.pieces().position});
    decode(input, frame.code, Kind::code);
  } catch (const BadCode&) {
  }
}

// What was encoded is decoded, whether from one code or from parts.
void go_round(const Input& input, bool parts) {
  const auto& [spec, code] = input.code();
  const Pieces pieces = input.pieces();
  const Exactly<float> x = input.values(), out(x.span.size()), next(x.span.size()),
                       next_velocity(x.span.size()), residual(std::span<const float>(x.span)),
                       velocity(std::span<const float>(x.span));
  const bool feedback = input.feedback() && (spec != "qsgd:bits=1") && !code->needs_owners();
  std::vector<float> amplitudes(input.amplitudes().begin(), input.amplitudes().end());
  ToEncode in{.pieces = pieces, .values = x.span, .scale = input.scale(), .key = 1, .ranks = 2};
  if (feedback || code->momentum() != 0) in.residual = residual.span, in.next = next.span;
  if (code->momentum() != 0) in.velocity = velocity.span, in.next_velocity = next_velocity.span;
  const int64_t n = pieces.numel();
  std::vector<std::vector<int64_t>> cuts;
  std::vector<Part> its;
  if (parts) {  // two, with pieces of their own
    for (const auto& [begin, end] : {std::pair{int64_t{0}, n / 2}, std::pair{n / 2, n}}) {
      std::vector<int64_t> ends;
      for (const int64_t e : pieces.ends)
        if (e > begin && begin < end && (ends.empty() || ends.back() < end - begin))
          ends.push_back(std::min(e, end) - begin);
      cuts.push_back(std::move(ends));
      Part part{.begin = begin, .end = end, .pieces = pieces};
      part.pieces.position += static_cast<uint64_t>(begin);
      its.push_back(part);
    }
    for (size_t p = 0; p < 2; ++p) its[p].pieces.ends = cuts[p];
  }
  std::vector<int64_t> cut_ends;
  for (const Part& part : its)
    for (const int64_t end : part.pieces.ends) cut_ends.push_back(part.begin + end);
  if (code->shares_amplitudes()) {
    ToEncode whole = in;
    if (parts) whole.pieces.ends = cut_ends;
    amplitudes.assign(whole.pieces.ends.size(), 0);
    code->amplitudes(whole, amplitudes);
    for (float& a : amplitudes)
      if (!std::isfinite(a)) a = std::numeric_limits<float>::max();
    in.amplitudes = amplitudes;
  }
  int64_t room = parts ? 0 : code->max_bytes(pieces);
  for (Part& part : its) {
    part.code_begin = room;
    part.code_bytes = code->max_part_bytes(pieces, part);
    room += part.code_bytes;
  }
  const Exactly<std::byte> bytes(static_cast<size_t>(room));
  const Encoded encoded =
      parts ? code->encode_parts(in, its, bytes.span) : code->encode(in, bytes.span);
  expect(encoded.bytes.total() <= room, spec, "a code took more than its room");
  if (code->fixed_size() && !parts)
    expect(encoded.bytes.total() == room, spec, "a code took less than its room");
  try {
    if (!parts)
      code->decode_add(bytes.span.first(static_cast<size_t>(encoded.bytes.total())), pieces,
                       in.amplitudes, out.span);
    size_t piece = 0;
    for (const Part& part : its) {
      const size_t count = part.pieces.ends.size();
      code->decode_add(bytes.span.subspan(static_cast<size_t>(part.code_begin),
                                          static_cast<size_t>(part.code_bytes)),
                       part.pieces,
                       amplitudes.empty() ? in.amplitudes : in.amplitudes.subspan(piece, count),
                       out.span.subspan(static_cast<size_t>(part.begin),
                                        static_cast<size_t>(part.end - part.begin)));
      piece += count;
    }
  } catch (const BadCode& e) {
    expect(false, spec, e.what());
  }
  expect_finite(out.span, spec);
  if (!encoded.finite) {
    // Of parts only those where x is not finite are.
    for (float v : out.span) expect(parts || v == 0, spec, "a code of zeros is none");
  } else if (!in.residual.empty()) {
    expect_finite(next.span, spec);
  }
}

}  // namespace
}  // namespace lockstep::distributed

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::distributed;
  const lockstep::ThreadBudget alone(1);
  const Input input({reinterpret_cast<const std::byte*>(data), size});
  switch (input.action()) {
    case 0:
      decode(input, input.rest(), Kind::code);
      break;
    case 1:
      decode(input, input.rest(), Kind::sum);
      break;
    case 2:
      read(input);
      break;
    case 3:
      go_round(input, false);
      break;
    case 4:
      go_round(input, true);
      break;
  }
  return 0;
}
