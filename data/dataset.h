#pragma once
#include "data/text.h"

#include "core/tensor.h"

#include <cstdint>
#include <vector>

namespace lockstep::data {

/// A batch of token windows: inputs and the next tokens, i32 [B, T].
struct TokenBatch {
  Tensor inputs, targets;
  int64_t step = 0;  ///< global step, counting on over epochs
  int64_t first_sample =
      0;  ///< position of the first row in the step's global batch (keys dropout)
  int64_t rows() const { return inputs.defined() ? inputs.size(0) : 0; }
  int64_t tokens() const { return inputs.defined() ? inputs.numel() : 0; }
};

/// Windows of T inputs and T targets, the targets one token later: N tokens have N - T of them, the
/// last one's final target being the last token. SystemError(file) when N <= T, saying both.
class TokenWindows {
 public:
  TokenWindows(std::vector<int32_t> tokens, int64_t context);
  /// Windows, which overlap: one starts at each of 0 … count() - 1.
  int64_t count() const { return static_cast<int64_t>(tokens_.size()) - context_; }
  /// Windows side by side, starting at 0, T, 2T, …: what an evaluation goes through. Each predicts
  /// other tokens; up to T - 1 tokens at the end are left out.
  int64_t disjoint() const { return (static_cast<int64_t>(tokens_.size()) - 1) / context_; }
  int64_t context() const { return context_; }
  /// Copies the window that starts at token `start` into row `row` of a batch.
  void copy_to(int64_t start, const TokenBatch& batch, int64_t row) const;
  const std::vector<int32_t>& tokens() const { return tokens_; }

 private:
  std::vector<int32_t> tokens_;
  int64_t context_;
};

/// The first ⌊(1 - fraction) · N⌋ tokens for training and the rest, the tail, for validation: the
/// same ones whatever the seed. 0 <= fraction < 1.
struct TailSplit {
  std::vector<int32_t> training, tail;
};
TailSplit split_tail(const std::vector<int32_t>& tokens, double fraction);

}  // namespace lockstep::data
