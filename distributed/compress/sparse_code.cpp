#include "distributed/compress/sparse_code.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/kernels/feedback.h"
#include "core/kernels/topk.h"
#include "distributed/compress/bad_code.h"

namespace lockstep::distributed {
namespace {

constexpr SparseBlock kSums(SparseBlock::Values::fp32);

void expect_numel(const Pieces& pieces, std::span<float> out) {
  if (pieces.numel() != static_cast<int64_t>(out.size()))
    throw BadCode("it is of another number of elements");
}

}  // namespace

Chosen::Chosen(int64_t room, int64_t pieces)
    : memory_positions_(Tensor::empty({room}, DType::i32)),
      memory_values_(Tensor::empty({room})),
      memory_ends_(Tensor::empty({pieces}, DType::i64)),
      positions_(memory_positions_.mutable_data<int32_t>()),
      values_(memory_values_.mutable_data<float>()),
      ends_(memory_ends_.mutable_data<int64_t>()) {}

Chosen::Room Chosen::next(int64_t n) const {
  const auto size = static_cast<size_t>(n);
  return {{positions_ + count(), size}, {values_ + count(), size}};
}

void Chosen::end_piece(int64_t first, int64_t n) {
  for (int32_t& position : next(n).positions) position += static_cast<int32_t>(first);
  const int64_t end = count() + n;
  ends_[pieces_++] = end;
}

int64_t SparseCode::max_bytes(const Pieces& pieces) const {
  int64_t most = 0;
  each_piece(pieces, [&](size_t, int64_t begin, int64_t end) {
    most += most_of(end - begin, pieces.window);
  });
  const int64_t n = pieces.numel(), count = static_cast<int64_t>(pieces.ends.size());
  return fixed_size() ? block_.bytes(n, count, most) : block_.most_bytes(n, count, most);
}

SparseCode::Ready SparseCode::prepare(const ToEncode& in) const {
  check(in.pieces.numel() <= std::numeric_limits<int32_t>::max(),
        "[compress] a range of {} elements; expected at most 2^31 - 1", in.pieces.numel());
  const auto pieces = static_cast<int64_t>(in.pieces.ends.size());
  const bool feedback = !in.residual.empty();
  Ready ready{choose(in), Tensor::empty({pieces}), {}};
  const std::span<float> values = ready.chosen.values();
  const std::span<const int32_t> positions = ready.chosen.positions();
  if (feedback && in.scale != 1)
    for (float& v : values) v *= in.scale;
  float* const steps = ready.steps.mutable_data<float>();
  const Tensor lost =
      feedback && !block_.exact() ? Tensor::empty({ready.chosen.count()}) : Tensor();
  for (int64_t p = 0; p < pieces; ++p) {
    const auto begin = static_cast<size_t>(ready.chosen.end(p - 1)),
               count = static_cast<size_t>(ready.chosen.end(p)) - begin;
    const std::span<float> its = values.subspan(begin, count);
    const float largest = kernel::largest_magnitude(its);
    ready.encoded.finite &= std::isfinite(largest);
    steps[p] = block_.step(std::isfinite(largest) ? largest : 0);
    if (block_.exact() || !std::isfinite(largest)) continue;
    const auto zeros = [&] { return std::ranges::count(its, 0.0f); };
    const auto zeros_before = zeros();
    block_.round(
        its, steps[p],
        feedback ? std::span{lost.mutable_data<float>() + begin, count} : std::span<float>());
    ready.encoded.underflowed += zeros() - zeros_before;
  }
  if (!ready.encoded.finite) {
    std::ranges::fill(values, 0.0f);
    for (int64_t p = 0; p < pieces; ++p) steps[p] = block_.step(0);
    ready.encoded.underflowed = 0;
    return ready;
  }
  if (feedback) {
    const float* const rest = lost.defined() ? lost.data<float>() : nullptr;
    for (size_t i = 0; i < positions.size(); ++i)
      in.next[static_cast<size_t>(positions[i])] = rest ? rest[i] / in.scale : 0;
  }
  sent(in, ready.chosen);
  return ready;
}

CodeBytes SparseCode::write(const Ready& ready, std::span<const int64_t> ends, int64_t begin,
                            int64_t piece, int64_t room, std::span<std::byte> code) const {
  const std::span<const int32_t> positions = ready.chosen.positions();
  const auto at = [&](int64_t position) {
    return static_cast<size_t>(std::ranges::lower_bound(positions, position) - positions.begin());
  };
  const size_t first = at(begin), count = at(begin + (ends.empty() ? 0 : ends.back())) - first;
  return block_.write(
      {.positions = positions.subspan(first, count),
       .values = std::span<const float>(ready.chosen.values()).subspan(first, count),
       .steps = {ready.steps.data<float>() + piece, ends.size()},
       .first = begin},
      ends, room, code);
}

Encoded SparseCode::encode(const ToEncode& in, std::span<std::byte> code) const {
  Ready ready = prepare(in);
  ready.encoded.bytes =
      write(ready, in.pieces.ends, 0, 0, fixed_size() ? max_bytes(in.pieces) : 0, code);
  return ready.encoded;
}

void SparseCode::decode_add(std::span<const std::byte> code, const Pieces& pieces,
                            std::span<const float>, std::span<float> out) const {
  expect_numel(pieces, out);
  block_.read_add(code, pieces.ends, out);
}

Encoded SparseCode::encode_parts(const ToEncode& in, std::span<Part> parts,
                                 std::span<std::byte> code) const {
  Ready ready = prepare(in);
  for (Part& part : parts) {
    const auto piece =
        std::ranges::upper_bound(in.pieces.ends, part.begin) - in.pieces.ends.begin();
    const CodeBytes bytes = write(
        ready, part.pieces.ends, part.begin, piece, 0,
        code.subspan(static_cast<size_t>(part.code_begin), static_cast<size_t>(part.code_bytes)));
    part.code_bytes = bytes.total();
    ready.encoded.bytes += bytes;
  }
  return ready.encoded;
}

int64_t SparseCode::max_part_bytes(const Pieces& whole, const Part& part) const {
  int64_t most = 0;
  each_piece(whole, [&](size_t, int64_t begin, int64_t end) {
    const int64_t overlap = std::min(end, part.end) - std::max(begin, part.begin);
    if (overlap > 0) most += std::min(most_of(end - begin, whole.window), overlap);
  });
  return block_.most_bytes(part.end - part.begin, static_cast<int64_t>(part.pieces.ends.size()),
                           most);
}

int64_t SparseCode::max_sum_bytes(const Pieces& part, int) const {
  return kSums.bytes(part.numel(), 1, part.numel());
}

Encoded SparseCode::encode_sum(const ToEncode& in, std::span<std::byte> code) const {
  const int64_t n = in.pieces.numel();
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  Encoded encoded;
  encoded.finite = std::isfinite(kernel::largest_magnitude(in.values));
  const int64_t count = encoded.finite ? kernel::select_above_of({}, {}, in.values, kLeast) : 0;
  const bool all = kSums.bytes(n, 1, count) >= kSums.bytes(n, 1, n);
  Chosen chosen(all ? n : count, 1);
  const Chosen::Room room = chosen.next(all ? n : count);
  if (all) {
    for (int64_t i = 0; i < n; ++i)
      room.positions[static_cast<size_t>(i)] = static_cast<int32_t>(i);
    std::ranges::copy(in.values, room.values.begin());
  } else if (count > 0) {
    kernel::select_above_of(room.positions, room.values, in.values, kLeast);
  }
  const int64_t ends[] = {n};
  encoded.bytes = kSums.write({.positions = room.positions, .values = room.values}, ends, 0, code);
  return encoded;
}

void SparseCode::decode_sum(std::span<const std::byte> code, const Pieces& part,
                            std::span<const float>, std::span<float> out) const {
  expect_numel(part, out);
  kSums.read_add(code, part.ends, out);
}

double SparseCode::predicted_bytes(const Pieces& pieces) const {
  double count = 0;
  each_piece(pieces,
             [&](size_t, int64_t begin, int64_t end) { count += expected_of(end - begin); });
  return static_cast<double>(
      block_.bytes(pieces.numel(), static_cast<int64_t>(pieces.ends.size()), std::llround(count)));
}

// Ranks that choose independently of each other.
double SparseCode::predicted_sum_bytes(const Pieces& part, int ranks) const {
  double count = 0;
  each_piece(part, [&](size_t, int64_t begin, int64_t end) {
    const auto n = static_cast<double>(end - begin);
    if (n > 0) count += n * (1 - std::pow(1 - expected_of(end - begin) / n, ranks));
  });
  return static_cast<double>(std::min(kSums.bytes(part.numel(), 1, std::llround(count)),
                                      kSums.bytes(part.numel(), 1, part.numel())));
}

}  // namespace lockstep::distributed
