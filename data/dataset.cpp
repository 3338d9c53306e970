#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lockstep::data {

TokenWindows::TokenWindows(std::vector<int32_t> tokens, int64_t context)
    : tokens_(std::move(tokens)), context_(context) {
  check(context >= 1, "[data.windows] context; expected at least 1, got {}", context);
  if (count() < 1)
    throw SystemError(Fault::file, fmt::format("[data.windows] the text is too short for a context "
                                               "of {}; expected at least {} tokens, got {}",
                                               context, context + 1, tokens_.size()));
}

void TokenWindows::copy_to(int64_t start, const TokenBatch& batch, int64_t row) const {
  check(start >= 0 && start < count(), "[data.windows] start; expected 0..{}, got {}", count() - 1,
        start);
  check(row >= 0 && row < batch.rows(), "[data.windows] row; expected 0..{}, got {}",
        batch.rows() - 1, row);
  for (const Tensor* x : {&batch.inputs, &batch.targets})
    check(x->rank() == 2 && x->size(0) == batch.rows() && x->size(1) == context_,
          "[data.windows] batch; expected shape [{}, {}], got {}", batch.rows(), context_, *x);
  const size_t bytes = static_cast<size_t>(context_) * sizeof(int32_t);
  std::memcpy(batch.inputs.mutable_data<int32_t>() + row * context_, tokens_.data() + start, bytes);
  std::memcpy(batch.targets.mutable_data<int32_t>() + row * context_, tokens_.data() + start + 1,
              bytes);
}

TailSplit split_tail(const std::vector<int32_t>& tokens, double fraction) {
  check(fraction >= 0 && fraction < 1,
        "[data.split_tail] fraction; expected 0 <= fraction < 1, got {}", fraction);
  const auto cut =
      tokens.begin() + static_cast<int64_t>((1 - fraction) * static_cast<double>(tokens.size()));
  return {{tokens.begin(), cut}, {cut, tokens.end()}};
}

}  // namespace lockstep::data
