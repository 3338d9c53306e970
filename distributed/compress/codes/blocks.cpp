#include "distributed/compress/codes/blocks.h"

#include "distributed/compress/codes/parts.h"

namespace lockstep::distributed {

int64_t BlockCompressor::block_of(const Spec& spec, int64_t fallback) {
  const int64_t block =
      spec.integer("block", fallback, {.min = 8, .max = kernel::BlockCode::kMostBlock});
  check(block % 8 == 0, "[distributed.compress] '{}': block; expected a multiple of 8, got {}",
        spec.written(), block);
  return block;
}

int64_t BlockCompressor::max_bytes(const Pieces& pieces) const {
  return code_.scale_bytes(pieces.numel()) + kernel::packed_bytes(pieces.numel(), code_.bits);
}

Encoded BlockCompressor::encode(const ToEncode& in, std::span<std::byte> code) const {
  const int64_t numel = in.pieces.numel(), scales = code_.scale_bytes(numel);
  const kernel::Draws draws = draws_of(in);
  const bool finite = kernel::encode_blocks(code.data(), code.data() + scales, fed_back(in), code_,
                                            rounding_ == Rounding::stochastic ? &draws : nullptr);
  const int64_t payload = numel * code_.bits / 8;
  return {.bytes = {.payload = payload,
                    .scales = scales,
                    .padding = kernel::packed_bytes(numel, code_.bits) - payload},
          .finite = finite};
}

void BlockCompressor::decode_add(std::span<const std::byte> code, const Pieces& pieces,
                                 std::span<const float> /*amplitudes*/,
                                 std::span<float> out) const {
  expect_size(name_, code, max_bytes(pieces));
  const int64_t numel = pieces.numel();
  expect_good(name_, kernel::add_blocks(out.data(), numel, code.data(),
                                        code.data() + code_.scale_bytes(numel), code_));
}

}  // namespace lockstep::distributed
