#pragma once
#include <memory>
#include <string>
#include <vector>

#include "distributed/compress/compress_spec.h"
#include "distributed/compress/compressor.h"

/// A code and what one rank keeps for it, for tests of codes by themselves.
namespace lockstep::distributed {

using Floats = std::vector<float>;

struct OneRank {
  OneRank(const std::string& spec, std::vector<int64_t> piece_ends)
      : code(make_compressor(spec)), ends(std::move(piece_ends)) {
    in.pieces.ends = ends;
    in.pieces.seed = 7;
  }
  /// +ef
  OneRank& with_feedback() {
    residual.assign(size(), 0);
    if (code->momentum() != 0) velocity.assign(size(), 0);
    return *this;
  }
  size_t size() const { return static_cast<size_t>(ends.empty() ? 0 : ends.back()); }

  /// Encodes x, which becomes what a receiver sees of it; residuals are those of a step that was
  /// applied. The code has exactly the room that it asks for.
  Floats send(const Floats& x) {
    input(x);
    bytes.assign(static_cast<size_t>(code->max_bytes(in.pieces)), std::byte{0xee});
    encoded = code->encode(in, bytes);
    bytes.resize(static_cast<size_t>(encoded.bytes.total()));
    if (encoded.finite) ++in.pieces.window;
    return decoded(in.pieces);
  }
  /// The same by way of parts that end at `borders`.
  Floats send_parts(const Floats& x, const std::vector<int64_t>& borders) {
    input(x);
    Floats out(size());
    std::vector<std::vector<int64_t>> cuts;
    std::vector<Part> parts;
    int64_t begin = 0, room = 0;
    cuts.reserve(borders.size());
    for (const int64_t end : borders) {
      cuts.emplace_back();
      for (const int64_t e : ends)
        if (begin < end && e > begin && (cuts.back().empty() || cuts.back().back() < end - begin))
          cuts.back().push_back(std::min(e, end) - begin);
      Part part{.begin = begin, .end = end, .pieces = in.pieces};
      part.pieces.ends = cuts.back();
      part.pieces.position += static_cast<uint64_t>(begin);
      part.code_begin = room;
      part.code_bytes = code->max_part_bytes(in.pieces, part);
      room += part.code_bytes;
      parts.push_back(part);
      begin = end;
    }
    bytes.assign(static_cast<size_t>(room), std::byte{0xee});
    encoded = code->encode_parts(in, parts, bytes);
    for (const Part& part : parts)
      code->decode_add(
          std::span<const std::byte>(bytes).subspan(static_cast<size_t>(part.code_begin),
                                                    static_cast<size_t>(part.code_bytes)),
          part.pieces, {},
          std::span(out).subspan(static_cast<size_t>(part.begin),
                                 static_cast<size_t>(part.end - part.begin)));
    return out;
  }
  Floats decoded(const Pieces& pieces) const {
    Floats out(size());
    code->decode_add(bytes, pieces, {}, out);
    return out;
  }

  std::unique_ptr<Compressor> code;
  std::vector<int64_t> ends;
  ToEncode in;  ///< scale, weight and the like are to be set here
  Floats residual, velocity;
  std::vector<std::byte> bytes;
  Encoded encoded;

 private:
  void input(const Floats& x) {
    in.pieces.ends = ends;
    in.values = x;
    in.next = residual;
    in.residual = residual;
    in.next_velocity = velocity;
    in.velocity = velocity;
  }
};

}  // namespace lockstep::distributed
