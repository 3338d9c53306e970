#pragma once
#include <cstdint>
#include <span>

#include "apps/compare/claim.h"

namespace lockstep::apps {

/// What the documents' snippet makes of a tensor: k = int(ratio·n); threshold = topk(|g|, k)[-1];
/// mask = |g| >= threshold.
struct SnippetMask {
  bool fails = false;  ///< k is 0, and an empty list has no last element
  int64_t sent = 0;    ///< elements of the mask
};
SnippetMask snippet_mask(std::span<const float> gradient, double ratio);

/// Of all tensors of real gradients that the snippet was given.
struct SnippetFaults {
  int64_t tensors = 0, failing = 0;
  double most_sent = 0;  ///< the largest share of a tensor that it sends, where it does not fail
};
/// The rule of A2c. Bytes over those of fp32 at 8 ranks, by encoding the least and the most.
Verdict judge_top_percent(double least_bytes, double most_bytes, const SnippetFaults& faults);

}  // namespace lockstep::apps
