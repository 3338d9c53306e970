#pragma once
#include <cstdint>

#include "apps/compare/claim.h"

/// Models that several claims train, so that they share runs.
namespace lockstep::apps {

/// 34 thousand parameters on generated text, a few milliseconds a step: for claims about bytes and
/// modelled times, to which it does not matter what is learnt.
RunRequest tiny_gpt(int64_t ranks, int64_t steps);

/// 0.12 million parameters on `setting.text`, evaluated on 64k tokens: for claims about learning.
RunRequest small_gpt(const Setting& setting, int64_t seed);

/// Bytes that a rank counts a step, without what a run sends at its beginning and end: from two
/// runs of different lengths.
struct CountedBytes {
  explicit CountedBytes(const RunRequest& request)
      : shorter(request.with("--steps", kShort)), longer(request.with("--steps", kLong)) {}
  double per_step(Results& results) const;

  static constexpr int64_t kShort = 4, kLong = 12;
  RunRequest shorter, longer;
};

}  // namespace lockstep::apps
