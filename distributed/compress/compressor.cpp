#include "distributed/compress/compressor.h"

namespace lockstep::distributed {
namespace {

template <class T>
std::span<T> part_of(std::span<T> all, const Part& part) {
  if (all.empty()) return all;
  return all.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.end - part.begin));
}

}  // namespace

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
    all.bytes.payload += encoded.bytes.payload;
    all.bytes.indices += encoded.bytes.indices;
    all.bytes.scales += encoded.bytes.scales;
    all.bytes.padding += encoded.bytes.padding;
    all.finite &= encoded.finite;
    all.saturated += encoded.saturated;
    all.underflowed += encoded.underflowed;
  }
  return all;
}

}  // namespace lockstep::distributed
