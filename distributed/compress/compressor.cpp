#include "distributed/compress/compressor.h"

namespace lockstep::distributed {
namespace {

template <class T>
std::span<T> part_of(std::span<T> all, const Part& part) {
  if (all.empty()) return all;
  return all.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.end - part.begin));
}

}  // namespace

CodeBytes& CodeBytes::operator+=(const CodeBytes& more) {
  payload += more.payload;
  indices += more.indices;
  scales += more.scales;
  padding += more.padding;
  return *this;
}

Compressor::Scope scope_of(const Spec& spec, Compressor::Scope fallback) {
  const bool tensor = fallback == Compressor::Scope::tensor;
  return spec.text("scope", tensor ? "tensor" : "bucket", {"tensor", "bucket"}) == "tensor"
             ? Compressor::Scope::tensor
             : Compressor::Scope::bucket;
}

Encoded Compressor::encode_parts(const ToEncode& in, std::span<Part> parts,
                                 std::span<std::byte> code) const {
  Encoded all;
  size_t piece = 0;  // amplitudes are by piece of the parts
  for (Part& part : parts) {
    ToEncode one = in;
    one.pieces = part.pieces;
    one.values = part_of(in.values, part);
    one.residual = part_of(in.residual, part);
    one.next = part_of(in.next, part);
    if (!in.amplitudes.empty())
      one.amplitudes = in.amplitudes.subspan(piece, part.pieces.ends.size());
    piece += part.pieces.ends.size();
    const Encoded encoded = encode(one, code.subspan(static_cast<size_t>(part.code_begin),
                                                     static_cast<size_t>(part.code_bytes)));
    part.code_bytes = encoded.bytes.total();
    all.bytes += encoded.bytes;
    all.finite &= encoded.finite;
    all.saturated += encoded.saturated;
    all.underflowed += encoded.underflowed;
  }
  return all;
}

}  // namespace lockstep::distributed
